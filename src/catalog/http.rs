//! One file over HTTP, on a thread of its own, so that whoever waits for it can stop waiting at any moment.
//!
//! Redirects are followed by hand: the hub announces the sha256 of a file on the answer that redirects to it, and a
//! token for the hub must not travel on.

use crate::words::counted;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ureq::http::{HeaderMap, Response, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

const CONNECT: Duration = Duration::from_secs(10);
/// The longest silence.
const SILENCE: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 256 << 10;
const REDIRECTS: u32 = 10;

/// What to fetch and what is already there.
#[derive(Clone, Debug)]
pub(super) struct Get {
    pub url: String,
    /// Sent to the first host only.
    pub token: Option<String>,
    /// Bytes already there, and what tells whether they are of the same file: a sha256 or an ETag.
    pub have: Option<(u64, String)>,
}

/// What is known once the file itself begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    /// Where the bytes that follow belong: 0, or what was there.
    pub start: u64,
    pub total_bytes: Option<u64>,
    /// As the hub announces it.
    pub sha256: Option<String>,
    /// What to compare a resumed fetch by.
    pub validator: Option<String>,
}

#[derive(Debug)]
pub(super) enum Part {
    Head(Head),
    Bytes(Vec<u8>),
    End,
    Failed(HttpError),
}

#[derive(Debug)]
pub(super) struct HttpError {
    pub message: String,
    /// Whether another try may work.
    pub passing: bool,
}

impl HttpError {
    fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), passing: false }
    }
}

/// Starts to fetch. The thread ends soon after the receiver is dropped.
pub(super) fn start(get: Get) -> std::io::Result<Receiver<Part>> {
    // Two chunks ahead of the writer are enough to keep the line busy.
    let (sender, receiver) = sync_channel(2);
    std::thread::Builder::new().name("fetch".into()).spawn(move || {
        let last = match fetch(&get, &sender) {
            Ok(true) => Part::End,
            Ok(false) => return,
            Err(error) => Part::Failed(error),
        };
        let _ = sender.send(last);
    })?;
    Ok(receiver)
}

/// False when nobody listens any more.
fn fetch(get: &Get, sender: &SyncSender<Part>) -> Result<bool, HttpError> {
    let (head, mut response) = open(get)?;
    let expected = head.total_bytes.map(|total| total.saturating_sub(head.start));
    if sender.send(Part::Head(head)).is_err() {
        return Ok(false);
    }
    let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
    let mut received = 0;
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut filled = 0;
        while filled < CHUNK_BYTES {
            match reader.read(&mut chunk[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What came before the break counts.
                    chunk.truncate(filled);
                    let _ = sender.send(Part::Bytes(chunk));
                    return Err(HttpError { message: format!("the connection broke off: {error}"), passing: true });
                }
            }
        }
        if filled == 0 {
            break;
        }
        received += filled as u64;
        chunk.truncate(filled);
        if sender.send(Part::Bytes(chunk)).is_err() {
            return Ok(false);
        }
    }
    match expected {
        Some(expected) if received < expected => {
            let message = format!("the connection closed after {received} of {}", counted(expected, "byte"));
            Err(HttpError { message, passing: true })
        }
        _ => Ok(true),
    }
}

fn agent() -> Agent {
    let roots = std::env::var_os("SSL_CERT_FILE").and_then(|path| certificates(&path));
    let tls = TlsConfig::builder().root_certs(roots.unwrap_or(RootCerts::WebPki)).build();
    // The proxy is the environment's, as ureq has it by itself.
    let config = Agent::config_builder()
        .tls_config(tls)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .user_agent(concat!("sipllm/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// A proxy that looks into connections has a certificate of its own; where its file cannot be used, the usual ones are.
fn certificates(path: &std::ffi::OsStr) -> Option<RootCerts> {
    let pem = std::fs::read(path).ok()?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    (!certificates.is_empty()).then(|| RootCerts::Specific(Arc::new(certificates)))
}

/// Follows redirects to the file, resuming where the bytes that are there are of the same file.
fn open(get: &Get) -> Result<(Head, Response<Body>), HttpError> {
    let agent = agent();
    let mut url = get.url.clone();
    let mut announced = Announced::default();
    let mut have = get.have.clone().filter(|(bytes, _)| *bytes > 0);
    for _ in 0..=REDIRECTS {
        let mut request = agent.get(&url).header(header::ACCEPT_ENCODING, "identity");
        if let Some(token) = get.token.as_ref().filter(|_| same_host(&url, &get.url)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some((bytes, _)) = &have {
            request = request.header(header::RANGE, format!("bytes={bytes}-"));
        }
        let response = request.call().map_err(explain)?;
        let status = response.status().as_u16();
        announced.note(response.headers());
        if let (Some((_, validator)), Some(sum)) = (&have, &announced.sha256)
            && validator != sum
        {
            have = None;
        }
        match status {
            301 | 302 | 303 | 307 | 308 => {
                let location = text(response.headers(), "location").unwrap_or_default();
                url = join(&url, location).ok_or_else(|| {
                    HttpError::lasting(format!("{} redirects to a place that is not followed", host(&url)))
                })?;
            }
            200 => {
                let total = announced.bytes.or_else(|| number(response.headers(), "content-length"));
                return Ok((announced.head(0, total, response.headers()), response));
            }
            206 => {
                let range = text(response.headers(), "content-range").and_then(parse_content_range);
                let etag = text(response.headers(), "etag").map(str::to_owned);
                match (range, have.take()) {
                    (Some((start, total)), Some((bytes, validator)))
                        if start == bytes && (announced.sha256.is_some() || etag.as_deref() == Some(&*validator)) =>
                    {
                        let total = announced.bytes.or(total);
                        return Ok((announced.head(start, total, response.headers()), response));
                    }
                    // Of another file than what is there: once more from the start.
                    _ => {}
                }
            }
            416 if have.is_some() => have = None,
            401 | 403 => {
                let message = format!(
                    "{} refuses the file (HTTP {status}); a model with terms to accept needs them accepted there \
                     and HF_TOKEN set",
                    host(&url)
                );
                return Err(HttpError::lasting(message));
            }
            404 | 410 => return Err(HttpError::lasting(format!("{} has no such file (HTTP {status})", host(&url)))),
            _ => {
                let passing = status == 408 || status == 429 || status >= 500;
                return Err(HttpError { message: format!("{} answers HTTP {status}", host(&url)), passing });
            }
        }
    }
    Err(HttpError::lasting(format!("{} redirects without end", host(&get.url))))
}

/// What the answers on the way said of the file.
#[derive(Default)]
struct Announced {
    sha256: Option<String>,
    bytes: Option<u64>,
}

impl Announced {
    /// `x-linked-etag` is the sha256 of a file in large file storage.
    fn note(&mut self, headers: &HeaderMap) {
        let sum = text(headers, "x-linked-etag").map(|etag| etag.trim_matches('"').to_ascii_lowercase());
        let sum = sum.filter(|sum| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()));
        self.sha256 = self.sha256.take().or(sum);
        self.bytes = self.bytes.or_else(|| number(headers, "x-linked-size"));
    }

    fn head(self, start: u64, total_bytes: Option<u64>, headers: &HeaderMap) -> Head {
        // A weak ETag does not promise the same bytes.
        let etag = text(headers, "etag").filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        Head { start, total_bytes, validator: self.sha256.clone().or(etag), sha256: self.sha256 }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name)?.trim().parse().ok()
}

/// Start and total of `bytes 100-199/200`.
fn parse_content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}

fn explain(error: ureq::Error) -> HttpError {
    let message = match &error {
        ureq::Error::HostNotFound => "the host's name is not known here".to_owned(),
        ureq::Error::ConnectionFailed => "no connection".to_owned(),
        ureq::Error::Timeout(what) => format!("no answer in time ({what})"),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    let passing = matches!(
        error,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::Timeout(_) | ureq::Error::Io(_)
    );
    HttpError { message, passing }
}

/// Scheme and authority of a URL: `https://host:port`.
fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    let end = url[after..].find(['/', '?', '#']).map_or(url.len(), |at| after + at);
    &url[..end]
}

/// The host for messages, without what a URL may carry of credentials.
pub(super) fn host(url: &str) -> &str {
    let origin = origin(url);
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    authority.rsplit('@').next().unwrap_or(authority)
}

fn same_host(a: &str, b: &str) -> bool {
    origin(a).eq_ignore_ascii_case(origin(b))
}

/// Where a redirect leads; `None` where it leads off HTTP, or from HTTPS to HTTP.
fn join(base: &str, location: &str) -> Option<String> {
    let target = if location.starts_with("https://") || location.starts_with("http://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        let (scheme, _) = base.split_once("://")?;
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        format!("{}{location}", origin(base))
    } else if location.is_empty() || location.contains(':') {
        return None;
    } else {
        let path_end = base.find(['?', '#']).unwrap_or(base.len());
        let folder = base[..path_end].rfind('/').filter(|&at| at >= origin(base).len());
        match folder {
            Some(at) => format!("{}/{location}", &base[..at]),
            None => format!("{}/{location}", origin(base)),
        }
    };
    let downgrade = base.starts_with("https://") && !target.starts_with("https://");
    (!downgrade).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_joined_and_never_leave_https() {
        let base = "https://hub.example/a/b?x=1";
        assert_eq!(join(base, "https://cdn.example/f").as_deref(), Some("https://cdn.example/f"));
        assert_eq!(join(base, "//cdn.example/f").as_deref(), Some("https://cdn.example/f"));
        assert_eq!(join(base, "/c/d").as_deref(), Some("https://hub.example/c/d"));
        assert_eq!(join(base, "c").as_deref(), Some("https://hub.example/a/c"));
        assert_eq!(join("https://hub.example", "c").as_deref(), Some("https://hub.example/c"));
        for location in ["http://cdn.example/f", "file:///etc/passwd", "", "data:x"] {
            assert_eq!(join(base, location), None, "{location}");
        }
        assert_eq!(join("http://127.0.0.1:1/a", "/b").as_deref(), Some("http://127.0.0.1:1/b"));
    }

    #[test]
    fn content_ranges_are_read() {
        assert_eq!(parse_content_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(parse_content_range("bytes */200"), None);
    }

    #[test]
    fn messages_show_no_credentials() {
        assert_eq!(host("https://me:secret@hub.example:8443/x"), "hub.example:8443");
    }
}
