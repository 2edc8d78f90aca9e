//! A failure in a chat's words: what helps there is one of its commands, not a flag.

use crate::engine::protocol::{Failure, FailureKind};

const MIB: u64 = 1 << 20;

/// The failure's message and what to do.
pub fn in_chat(failure: &Failure) -> String {
    match (failure.kind, &failure.shortfall) {
        (FailureKind::Budget, Some(shortfall)) => {
            // A little over the least: the program grows while one types.
            let enough = shortfall.least_bytes.div_ceil(MIB) + 1;
            format!(
                "{}: /budget 0 takes the least and grows with the chat, /budget {enough}M is enough for what it is now",
                failure.message
            )
        }
        _ => failure.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::protocol::Shortfall;

    #[test]
    fn a_refused_budget_names_the_commands_that_help() {
        let shortfall = Shortfall { least_bytes: 29 * MIB + 1, ..Shortfall::default() };
        let failure =
            Failure { kind: FailureKind::Budget, message: "too little".into(), shortfall: Some(shortfall.clone()) };
        let said = in_chat(&failure);
        assert!(said.starts_with("too little: /budget 0 ") && said.contains("/budget 31M "), "{said}");
        assert_eq!(in_chat(&Failure { kind: FailureKind::Io, ..failure }), "too little");
    }
}
