//! Models split into several files, `NAME-00001-of-0000N.gguf`, as llama.cpp's `gguf-split` writes them:
//! every part carries `split.no`, `split.count` and `split.tensors.count`; the first has the model's metadata.

use std::path::{Path, PathBuf};

use super::{GgufError, Metadata, PartHeader};

/// How many parts the model has; 0 or 1 when it is not split.
pub(super) fn count(metadata: &Metadata) -> u64 {
    metadata.u64("split.count").unwrap_or(0)
}

/// Opens every part, in order; `opened` is the one at `path`.
pub(super) fn open_all(path: &Path, opened: PartHeader, count: u64) -> Result<Vec<PartHeader>, GgufError> {
    let count = u16::try_from(count).ok().filter(|count| *count <= 9999).ok_or_else(|| {
        GgufError::split(path, format!("says it is one of {count} parts, 9999 are possible; fetch it again"))
    })?;
    let number = opened.metadata.u64("split.no").filter(|number| *number < u64::from(count)).ok_or_else(|| {
        GgufError::split(path, format!("does not say which of its {count} parts it is; fetch it again"))
    })?;
    let stem = stem(path, number, count)?;

    let mut opened = Some(opened);
    let mut parts = Vec::new();
    for index in 0..count {
        let header = match opened.take_if(|_| u64::from(index) == number) {
            Some(mut header) => {
                for tensor in &mut header.tensors {
                    tensor.part = index;
                }
                header
            }
            None => open_sibling(path, &part_path(path, &stem, index, count), index, count)?,
        };
        parts.push(header);
    }

    let promised = parts[0].metadata.u64("split.tensors.count");
    let found: usize = parts.iter().map(|part| part.tensors.len()).sum();
    if let Some(promised) = promised.filter(|promised| *promised != found as u64) {
        let what =
            format!("its {count} parts hold {found} tensors, not the {promised} they promise; fetch all parts again");
        return Err(GgufError::split(path, what));
    }
    Ok(parts)
}

fn open_sibling(given: &Path, path: &Path, index: u16, count: u16) -> Result<PartHeader, GgufError> {
    if !path.exists() {
        let missing = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let what = format!("part {} of {count} is missing; put {missing} into the same folder", index + 1);
        return Err(GgufError::split(given, what));
    }
    let header = PartHeader::open(path, index)?;
    let says = (header.metadata.u64("split.no"), header.metadata.u64("split.count"));
    if says != (Some(index.into()), Some(count.into())) {
        let what =
            format!("is not part {} of {count} of this model, whatever its name says; fetch it again", index + 1);
        return Err(GgufError::split(path, what));
    }
    Ok(header)
}

/// The file name without `-00001-of-0000N.gguf`.
fn stem(path: &Path, number: u64, count: u16) -> Result<String, GgufError> {
    let suffix = format!("-{:05}-of-{count:05}.gguf", number + 1);
    path.file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_suffix(&suffix))
        .map(str::to_owned)
        .ok_or_else(|| {
            let what = format!(
                "is part {} of {count}, so its name must end in {suffix} for the others to be found; rename it",
                number + 1
            );
            GgufError::split(path, what)
        })
}

fn part_path(path: &Path, stem: &str, index: u16, count: u16) -> PathBuf {
    path.with_file_name(format!("{stem}-{:05}-of-{count:05}.gguf", index + 1))
}
