//! Counts as people say them.

use std::fmt::Display;

/// `1 token`, `2 tokens`, `3 passes`
pub fn counted<N: Display + PartialEq + From<u8>>(n: N, what: &str) -> String {
    if n == N::from(1) {
        return format!("1 {what}");
    }
    let ending = if what.ends_with('s') { "es" } else { "s" };
    format!("{n} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_said_in_the_singular_and_nothing_else_is() {
        assert_eq!([0u32, 1, 2].map(|n| counted(n, "token")), ["0 tokens", "1 token", "2 tokens"]);
        assert_eq!([1usize, 3].map(|n| counted(n, "pass")), ["1 pass", "3 passes"]);
    }
}
