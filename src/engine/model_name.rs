//! What a model is called everywhere: as its file, which is what was chosen and what tells one quantisation from another.
//! The name inside of a file is often another model's, the one it was made from.

use std::path::Path;

/// The file's name without its ending and quantisation, which stands beside it; the name inside where the file's says
/// nothing, as in stores that name files by their content.
pub fn model_name(path: &Path, inside: Option<&str>, quantization: &str) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if (stem.is_empty() || is_digest(&stem) || stem.eq_ignore_ascii_case("model"))
        && let Some(inside) = inside
    {
        return inside.to_owned();
    }
    let at = stem.len().saturating_sub(quantization.len());
    let named = stem.get(at..).is_some_and(|end| end.eq_ignore_ascii_case(quantization));
    let short = stem.get(..at).unwrap_or_default().trim_end_matches(['.', '-', '_', ' ']);
    if named && !short.is_empty() { short.to_owned() } else { stem.into_owned() }
}

fn is_digest(stem: &str) -> bool {
    let hex = stem.strip_prefix("sha256-").unwrap_or(stem);
    hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_as_its_file_is() {
        let inside = "Smollm2 135M 8k Lc100K Mix1 Ep2";
        for (file, shown) in [
            ("SmolLM2-135M-Instruct.q4_k.gguf", "SmolLM2-135M-Instruct"),
            ("SmolLM2-135M-Instruct-Q4_K_M.gguf", "SmolLM2-135M-Instruct-Q4_K_M"),
            ("Q4_K.gguf", "Q4_K"),
            ("model.gguf", inside),
            ("sha256-0123456789abcdef0123456789abcdef", inside),
        ] {
            assert_eq!(model_name(file.as_ref(), Some(inside), "Q4_K"), shown, "{file}");
        }
        assert_eq!(model_name("model.gguf".as_ref(), None, "Q4_K"), "model");
    }
}
