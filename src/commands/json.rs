//! What `--json` prints.

use std::fmt::Write as _;

/// The object on one line. JSON need not escape DEL, C1 controls and invisible formatting; a terminal wants them escaped.
pub fn json_line(object: &serde_json::Value) -> String {
    let mut line = String::new();
    for c in object.to_string().chars() {
        let mut units = [0; 2];
        if matches!(c, ' '..='~') || c.escape_debug().len() == 1 {
            line.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(line, "\\u{unit:04x}");
            }
        }
    }
    line.push('\n');
    line
}
