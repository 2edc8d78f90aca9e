//! The folder of installed models.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{ENTRIES, Entry};
use crate::config::Settings;
use crate::places::{self, NoHome, is_absent};
use crate::sanitize::sanitize;

/// Where models are kept.
#[derive(Clone, Debug)]
pub struct Library {
    folder: PathBuf,
}

/// A model file in the library; of a split model, its first part.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The catalog's name for it, or the file's stem.
    pub name: String,
    pub path: PathBuf,
    /// Of all parts.
    pub bytes: u64,
    pub entry: Option<&'static Entry>,
    /// Every file that belongs to it.
    pub files: Vec<PathBuf>,
    /// When it came here.
    pub fetched: SystemTime,
}

impl Installed {
    /// Whether this is its whole name, in lower case: catalog name, file name or stem.
    pub(super) fn answers_to(&self, lower: &str) -> bool {
        self.names().any(|name| name == lower)
    }

    /// Whether a name of it, in lower case, begins so.
    pub fn begins_with(&self, lower: &str) -> bool {
        self.names().any(|name| name.starts_with(lower))
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let stem = stem(&file).to_owned();
        [self.name.to_lowercase(), stem, file].into_iter()
    }
}

impl Library {
    pub fn open(settings: &Settings) -> Result<Self, NoHome> {
        Ok(Self { folder: places::data_dir(settings.data_dir.as_deref())?.join("models") })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every model in the folder, by name. A folder that does not exist holds none.
    pub fn installed(&self) -> io::Result<Vec<Installed>> {
        let files = match std::fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut models: Vec<Installed> = Vec::new();
        let mut paths: Vec<PathBuf> = files.map(|file| file.map(|f| f.path())).collect::<Result<_, _>>()?;
        paths.sort();
        for path in paths {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // A file that vanishes while we look is not here.
            let Ok(data) = std::fs::metadata(&path) else { continue };
            if !file.to_lowercase().ends_with(".gguf") || !data.is_file() {
                continue;
            }
            let name = sanitize(stem(&file)).replace(['\n', '\t'], " ");
            match models.last_mut() {
                // Sorted, the parts of a split model follow each other.
                Some(model) if split_part(&file).is_some_and(|part| part > 1) && model.name == name => {
                    model.bytes += data.len();
                    model.files.push(path);
                }
                _ => {
                    let entry = ENTRIES.iter().find(|entry| entry.file == file);
                    let name = entry.map_or(name, |entry| entry.name.clone());
                    let fetched = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    models.push(Installed { name, bytes: data.len(), entry, files: vec![path.clone()], path, fetched });
                }
            }
        }
        models.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(models)
    }
}

/// The file's name without `.gguf` and without the number of its part.
fn stem(file: &str) -> &str {
    let stem = file.get(..file.len().saturating_sub(5)).filter(|_| file.to_lowercase().ends_with(".gguf"));
    let stem = stem.unwrap_or(file);
    match split_part(file) {
        Some(_) => &stem[..stem.len() - "-00001-of-00002".len()],
        None => stem,
    }
}

/// Which part of a split model the file is: 2 for `name-00002-of-00003.gguf`.
pub(super) fn split_part(file: &str) -> Option<u32> {
    let stem = file.strip_suffix(".gguf").or_else(|| file.strip_suffix(".GGUF"))?;
    let tail = stem.get(stem.len().checked_sub("-00001-of-00002".len())?..)?;
    let (part, count) = tail.strip_prefix('-')?.split_once("-of-")?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    let (part, count) = (digits(part).then(|| part.parse().ok())??, digits(count).then(|| count.parse().ok())??);
    (1..=count).contains(&part).then_some(part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_split_model_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let library = Library { folder: folder.path().into() };
        for (file, bytes) in
            [("big-00002-of-00002.gguf", 5), ("big-00001-of-00002.gguf", 7), ("a.gguf", 1), ("b.gguf.part", 9)]
        {
            std::fs::write(folder.path().join(file), vec![0; bytes]).unwrap();
        }
        let installed = library.installed().unwrap();
        let listed: Vec<_> = installed.iter().map(|m| (m.name.as_str(), m.bytes, m.files.len())).collect();
        assert_eq!(listed, [("a", 1, 1), ("big", 12, 2)]);
        assert!(installed[1].path.ends_with("big-00001-of-00002.gguf"));
    }

    #[test]
    fn strange_file_names_are_no_trouble() {
        for (file, name, part) in [
            ("x-00001-of-00002.gguf", "x", Some(1)),
            ("é-0001-of-00002.gguf", "é-0001-of-00002", None),
            ("x-00001-of-00000.gguf", "x-00001-of-00000", None),
            ("x-00003-of-00002.gguf", "x-00003-of-00002", None),
            (".gguf", "", None),
            ("gguf", "gguf", None),
            ("日本語", "日本語", None),
        ] {
            assert_eq!((stem(file), split_part(file)), (name, part), "{file}");
        }
    }
}
