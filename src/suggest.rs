//! "Did you mean": the nearest of a few names.

/// The candidate that `text` most likely means: it begins with it, begins it, or is a few typing mistakes away.
pub fn closest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Distance is quadratic; nobody mistypes a name of this length.
    if text.is_empty() || text.len() > 100 {
        return None;
    }
    let text = text.to_lowercase();
    let scored = candidates.into_iter().filter_map(|candidate| {
        let lower = candidate.to_lowercase();
        let related = lower.starts_with(&text) || text.starts_with(&lower);
        let mistakes = distance(&text, &lower);
        let allowed = 1 + lower.chars().count() / 4;
        (related || mistakes <= allowed).then_some((mistakes, candidate))
    });
    scored.min_by_key(|(mistakes, _)| *mistakes).map(|(_, candidate)| candidate)
}

/// Levenshtein distance in characters, a swap of neighbours counted once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_and_shortened_names_are_found_and_strange_ones_not() {
        let names = ["budget", "sampling.temp", "qwen3-0.6b", "qwen3-1.7b"];
        assert_eq!(closest("bugdet", names), Some("budget"));
        assert_eq!(closest("sampling.temperature", names), Some("sampling.temp"));
        assert_eq!(closest("Qwen3", names), Some("qwen3-0.6b"));
        assert_eq!(closest("llama", names), None);
        assert_eq!(closest("", names), None);
    }
}
