//! Sizes and budgets as people write and read them: binary units throughout, so `512M` is 512 MiB.

use crate::engine::protocol::Budget;
use crate::sanitize::line;

const KIB: f64 = 1024.0;
/// Characters of a wrong size that its message quotes.
const MOST_QUOTED: usize = 60;

/// A size that could not be understood; the message says what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct SizeError {
    text: String,
    wanted: &'static str,
}

/// A change of budget typed in the chat: absolute, or relative to the one in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BudgetChange {
    To(Budget),
    /// Bytes more (or fewer).
    ByBytes(i64),
    /// A share of the budget in force more (or less): 0.1 is a tenth.
    ByShare(f64),
}

/// Bytes from `512M`, `1.5G`, `1.5 GiB`, `300 kb` or a plain number of bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let error = || SizeError { text: line(text, MOST_QUOTED), wanted: "a size such as 512M, 1.5G or 900K" };
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let number: f64 = trimmed[..digits].parse().map_err(|_| error())?;
    let unit = trimmed[digits..].trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let power = match unit {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(error()),
    };
    let bytes = number * KIB.powi(power);
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes.round() as u64) } else { Err(error()) }
}

/// A budget: a size, a percentage of full residency, `auto`, or `0` (also `least`) for the least that runs.
pub fn parse_budget(text: &str) -> Result<Budget, SizeError> {
    let error = || SizeError {
        text: line(text, MOST_QUOTED),
        wanted: "a budget: a size such as 512M, a percentage such as 60%, auto, or 0 for the least that runs",
    };
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("auto") {
        return Ok(Budget::Auto);
    }
    if ["least", "min"].iter().any(|w| trimmed.eq_ignore_ascii_case(w)) {
        return Ok(Budget::Least);
    }
    if let Some(percent) = trimmed.strip_suffix('%') {
        return match percent.trim().parse::<f64>() {
            Ok(p) if (0.0..=100.0).contains(&p) => Ok(Budget::Share(p / 100.0)),
            _ => Err(error()),
        };
    }
    match parse_size(trimmed).map_err(|_| error())? {
        0 => Ok(Budget::Least),
        bytes => Ok(Budget::Bytes(bytes)),
    }
}

/// A budget, or a step from the one in force: `+10%`, `-64M`.
pub fn parse_budget_change(text: &str) -> Result<BudgetChange, SizeError> {
    let trimmed = text.trim();
    let (sign, rest) = match trimmed.as_bytes().first() {
        Some(b'+') => (1.0, &trimmed[1..]),
        Some(b'-') => (-1.0, &trimmed[1..]),
        _ => return parse_budget(trimmed).map(BudgetChange::To),
    };
    let error = || SizeError { text: line(text, MOST_QUOTED), wanted: "a step such as +10% or -64M" };
    if let Some(percent) = rest.strip_suffix('%') {
        let p: f64 = percent.trim().parse().map_err(|_| error())?;
        return if p.is_finite() { Ok(BudgetChange::ByShare(sign * p / 100.0)) } else { Err(error()) };
    }
    let bytes = i64::try_from(parse_size(rest).map_err(|_| error())?).map_err(|_| error())?;
    Ok(BudgetChange::ByBytes(if sign < 0.0 { -bytes } else { bytes }))
}

/// `94.2 MiB`, `1.50 GiB`, `812 B`: three figures or so.
pub fn format_size(bytes: u64) -> String {
    let (number, unit) = scale(bytes);
    format!("{number} {unit}")
}

/// The number and the unit of [`format_size`] apart, for places where two sizes share a unit.
pub fn scale(bytes: u64) -> (String, &'static str) {
    let b = bytes as f64;
    if bytes < 1024 {
        (bytes.to_string(), "B")
    } else if b < KIB * KIB {
        (format!("{:.1}", b / KIB), "KiB")
    } else if b < KIB.powi(3) {
        (mebibytes(bytes), "MiB")
    } else {
        (format!("{:.2}", b / KIB.powi(3)), "GiB")
    }
}

/// The number of MiB with one decimal below 1000: `61.8`, `1812`.
pub fn mebibytes(bytes: u64) -> String {
    let m = bytes as f64 / (KIB * KIB);
    if m < 999.95 { format!("{m:.1}") } else { format!("{m:.0}") }
}

/// A budget as one would type it.
pub fn format_budget(budget: Budget) -> String {
    match budget {
        Budget::Auto => "auto".to_owned(),
        Budget::Least => "0".to_owned(),
        Budget::Bytes(bytes) => format_size(bytes),
        Budget::Share(share) => format!("{:.0}%", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn units_are_binary_with_or_without_their_last_letters() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1.5G", 3 << 29),
            ("1.5gb", 3 << 29),
            ("900k", 900 << 10),
            ("4096", 4096),
            ("12B", 12),
            ("0", 0),
            (".5M", 1 << 19),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "M", "-5M", "5X", "1.2.3M", "NaN", "1e3", "99999999999T"] {
            assert!(parse_size(text).unwrap_err().to_string().contains("512M"), "{text}");
        }
    }

    #[test]
    fn budgets_are_sizes_percentages_auto_or_the_least() {
        assert_eq!(parse_budget("auto").unwrap(), Budget::Auto);
        assert_eq!(parse_budget(" AUTO ").unwrap(), Budget::Auto);
        assert_eq!(parse_budget("0").unwrap(), Budget::Least);
        assert_eq!(parse_budget("60%").unwrap(), Budget::Share(0.6));
        assert_eq!(parse_budget("80M").unwrap(), Budget::Bytes(80 << 20));
        for text in ["101%", "-1%", "x%", "most", ""] {
            assert!(parse_budget(text).is_err(), "{text}");
        }
    }

    #[test]
    fn steps_are_signed_sizes_or_shares() {
        assert_eq!(parse_budget_change("+10%").unwrap(), BudgetChange::ByShare(0.1));
        assert_eq!(parse_budget_change("-64M").unwrap(), BudgetChange::ByBytes(-(64 << 20)));
        assert_eq!(parse_budget_change("80M").unwrap(), BudgetChange::To(Budget::Bytes(80 << 20)));
        assert!(parse_budget_change("+").is_err());
    }

    #[test]
    fn sizes_are_shown_in_about_three_figures() {
        for (bytes, text) in [
            (812, "812 B"),
            (1536, "1.5 KiB"),
            (98_775_859, "94.2 MiB"),
            (3 << 29, "1.50 GiB"),
            (1_047_527_424, "999.0 MiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }
}
