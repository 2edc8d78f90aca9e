//! What a model is called on the screen: as its file, which is what was chosen and what tells one quantisation from
//! another. The name inside of a file is often another model's, the one it was made from.

use crate::engine::protocol::ModelInfo;

/// The file's name without its ending and quantisation, which stands beside it; the name inside where the file's says
/// nothing, as in stores that name files by their content.
pub fn shown_name(info: &ModelInfo) -> String {
    let stem = info.path.file_stem().unwrap_or_default().to_string_lossy();
    let stem = super::clean(&stem);
    if stem.is_empty() || is_digest(&stem) || stem.eq_ignore_ascii_case("model") {
        return info.name.clone();
    }
    let at = stem.len().saturating_sub(info.quantization.len());
    let named = stem.get(at..).is_some_and(|end| end.eq_ignore_ascii_case(&info.quantization));
    let short = stem.get(..at).unwrap_or_default().trim_end_matches(['.', '-', '_', ' ']);
    if named && !short.is_empty() { short.to_owned() } else { stem }
}

/// Name and quantisation, where they do not stand side by side.
pub fn full_name(info: &ModelInfo) -> String {
    format!("{} ({})", shown_name(info), info.quantization)
}

fn is_digest(stem: &str) -> bool {
    let hex = stem.strip_prefix("sha256-").unwrap_or(stem);
    hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::samples;

    #[test]
    fn a_model_is_called_as_its_file_is() {
        let mut info = samples::info();
        info.name = "Smollm2 135M 8k Lc100K Mix1 Ep2".into();
        info.quantization = "Q4_K".into();
        for (file, shown) in [
            ("SmolLM2-135M-Instruct.q4_k.gguf", "SmolLM2-135M-Instruct"),
            ("SmolLM2-135M-Instruct-Q4_K_M.gguf", "SmolLM2-135M-Instruct-Q4_K_M"),
            ("Q4_K.gguf", "Q4_K"),
            ("model.gguf", "Smollm2 135M 8k Lc100K Mix1 Ep2"),
            ("sha256-0123456789abcdef0123456789abcdef", "Smollm2 135M 8k Lc100K Mix1 Ep2"),
        ] {
            info.path = file.into();
            assert_eq!(shown_name(&info), shown, "{file}");
        }
    }
}
