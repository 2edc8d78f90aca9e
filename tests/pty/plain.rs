//! `chat --plain` on a terminal: lines, and no escape code in them.

use crate::terminal::{Terminal, sipllm};

fn plain(variables: &[(&str, &str)], arguments: &[&str]) -> Terminal {
    let home = tempfile::tempdir().unwrap();
    let mut command = sipllm(&home, variables);
    command.arg("chat");
    command.arg(crate::terminal::model());
    command.args(["--threads", "1", "--temp", "0"]);
    command.args(arguments);
    Terminal::run(100, 40, command, home)
}

#[test]
fn a_dumb_terminal_and_a_wish_for_it_get_lines_without_escape_codes() {
    for (variables, arguments) in [(&[("TERM", "dumb")][..], &[][..]), (&[][..], &["--plain"][..])] {
        let mut all = variables.to_vec();
        all.push(("SIPLLM_MAX_TOKENS", "5"));
        let terminal = plain(&all, arguments);
        terminal.wait_for("/help lists the commands");
        terminal.line("hello");
        terminal.wait_for("the first after");
        for command in ["/set temp 0.5", "/budget 100M", "/memory", "/layers", "/speed", "/fork", "/copy", "/edit"] {
            terminal.line(command);
        }
        terminal.wait_for("Write it anew");
        let modes = terminal.modes();
        assert_eq!(modes, terminal.before, "a plain chat does not touch the terminal");
        terminal.line("/quit");
        let (code, bytes, _, _) = terminal.wait_end();
        assert_eq!(code, 0);
        assert!(!bytes.contains(&0x1b), "{:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn an_answer_is_stopped_by_a_key_or_a_command_and_kept() {
    let terminal = plain(&[], &["--plain", "--disk-limit", "400K", "--budget", "0", "--source", "buffered"]);
    terminal.wait_for("/help lists the commands");
    terminal.line("hello");
    std::thread::sleep(std::time::Duration::from_secs(2));
    terminal.keys("\x03");
    terminal.wait_for("/continue goes on");
    terminal.line("/continue");
    std::thread::sleep(std::time::Duration::from_secs(1));
    terminal.line("/stop");
    terminal.wait_until("stopped twice", |s| s.matches("/continue goes on").count() == 2);
}
