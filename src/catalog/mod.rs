//! Models by name: the catalog of what can be fetched, what is installed, and which file a name means.

mod http;
mod library;
mod package;
mod part;
mod pull;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub use library::{Installed, Library};
pub use part::{discard_left, left_bytes};
pub use pull::{Progress, PullError, Request, Sources, pull};

use crate::config::Settings;
use crate::places::NoHome;
use crate::sanitize::sanitize;
use crate::suggest::closest;

/// A model of the catalog, `assets/models.toml`.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What `pull` and every MODEL argument take.
    pub name: String,
    pub title: String,
    /// What machines it suits.
    pub suits: String,
    pub quantization: String,
    pub licence: String,
    pub file: String,
    /// Exact where there is a `sha256`, else about.
    pub bytes: u64,
    pub sha256: Option<String>,
    /// Repository on the hub, `ORG/REPO`.
    pub hub: Option<String>,
    /// Commit of that repository; `main` where it is absent.
    pub revision: Option<String>,
    /// Python packages that carry the same file, in parts to be joined in this order.
    #[serde(default)]
    pub package: Vec<PackagePart>,
}

/// One part of a model inside a Python package.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackagePart {
    /// Name and version, as pip takes them.
    pub requirement: String,
    /// Path within the package.
    pub member: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFile {
    model: Vec<Entry>,
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    // The file is part of the program, and a test reads it.
    toml::from_str::<CatalogFile>(include_str!("../../assets/models.toml")).map(|file| file.model).unwrap_or_default()
});

/// The catalog, the default first.
pub fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// The model that is fetched when there is none.
pub fn default_entry() -> Option<&'static Entry> {
    ENTRIES.first()
}

/// The entry of this name, or the only one that begins with it; case does not matter.
pub fn find(name: &str) -> Option<&'static Entry> {
    let name = name.to_lowercase();
    if name.is_empty() {
        return None;
    }
    let mut starting = ENTRIES.iter().filter(|entry| entry.name.starts_with(&name));
    let exact = ENTRIES.iter().find(|entry| entry.name == name);
    exact.or_else(|| starting.next().filter(|_| starting.next().is_none()))
}

/// Why no file is meant.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// A name of blanks would be the beginning of every name.
    #[error("the name of the model is empty; `sipllm models` lists them")]
    Empty,
    #[error("{}: no such file", shown(path))]
    NoSuchFile { path: String },
    #[error("{} is a pipe or a device, not a file; name a .gguf file", shown(path))]
    NoFile { path: String },
    #[error("{} is a folder; name a .gguf file", shown(path))]
    Folder { path: String },
    #[error("no model is called `{}`{hint}", shown(name))]
    Unknown { name: String, hint: String },
    #[error("`{}` could be {}; write more of the name", shown(name), matches.join(" or "))]
    Ambiguous { name: String, matches: Vec<String> },
    /// Of the catalog, but not fetched.
    #[error("{} is not here yet; `sipllm pull {}` fetches it", entry.name, entry.name)]
    NotHere { entry: &'static Entry },
    /// None was named and none is installed.
    #[error("there is no model yet; `sipllm pull {}` fetches one", entry.name)]
    NoneInstalled { entry: &'static Entry },
    #[error(transparent)]
    NoHome(#[from] NoHome),
    #[error("cannot list the models in {}: {source}", path.display())]
    Unlisted { path: PathBuf, source: std::io::Error },
}

/// The text as a message may hold it.
fn shown(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

/// The file that `model`, or where a command names none the settings, means: a path, a name, or the unambiguous
/// beginning of one; without any, the model that was fetched last.
pub fn resolve(model: Option<&str>, settings: &Settings) -> Result<PathBuf, ResolveError> {
    let named = model.or(settings.model.as_deref());
    if named.is_some_and(|name| name.trim().is_empty()) {
        return Err(ResolveError::Empty);
    }
    // A path needs no library, and must work where there is no home.
    if let Some(name) = named {
        let path = Path::new(name);
        if path.is_file() {
            return Ok(path.into());
        }
        if path.is_dir() && name.contains('/') {
            return Err(ResolveError::Folder { path: name.into() });
        }
        if path.exists() && !path.is_dir() {
            return Err(ResolveError::NoFile { path: name.into() });
        }
        if name.contains('/') {
            return Err(ResolveError::NoSuchFile { path: name.into() });
        }
    }
    let library = Library::open(settings)?;
    let installed =
        library.installed().map_err(|source| ResolveError::Unlisted { path: library.folder().into(), source })?;
    match named {
        Some(name) => named_model(name, &installed),
        None => last_fetched(&installed),
    }
}

fn last_fetched(installed: &[Installed]) -> Result<PathBuf, ResolveError> {
    match (installed.iter().max_by_key(|model| model.fetched), default_entry()) {
        (Some(last), _) => Ok(last.path.clone()),
        (None, Some(entry)) => Err(ResolveError::NoneInstalled { entry }),
        // A test keeps the catalog from being empty.
        (None, None) => Err(ResolveError::Unknown { name: "default".into(), hint: String::new() }),
    }
}

/// The installed model whose whole name, file name or path this is: what a command that cannot be taken back needs.
pub fn installed_as<'a>(name: &str, installed: &'a [Installed]) -> Option<&'a Installed> {
    let lower = name.to_lowercase();
    let path = Path::new(name).canonicalize().ok().filter(|_| name.contains('/'));
    let is_at = |model: &Installed| path.is_some() && model.path.canonicalize().ok() == path;
    installed.iter().find(|model| model.answers_to(&lower) || is_at(model))
}

fn named_model(name: &str, installed: &[Installed]) -> Result<PathBuf, ResolveError> {
    let lower = name.to_lowercase();
    if let Some(model) = installed.iter().find(|model| model.answers_to(&lower)) {
        return Ok(model.path.clone());
    }
    // The whole name of a catalog model is that one, even where it also begins the name of an installed one.
    if let Some(entry) = ENTRIES.iter().find(|entry| entry.name == lower) {
        return Err(ResolveError::NotHere { entry });
    }
    let matches: Vec<&Installed> = installed.iter().filter(|model| model.begins_with(&lower)).collect();
    match matches.as_slice() {
        [only] => return Ok(only.path.clone()),
        [] => {}
        _ => {
            let matches = matches.iter().map(|model| model.name.clone()).collect();
            return Err(ResolveError::Ambiguous { name: name.into(), matches });
        }
    }
    if let Some(entry) = find(name) {
        return Err(ResolveError::NotHere { entry });
    }
    if name.ends_with(".gguf") {
        return Err(ResolveError::NoSuchFile { path: name.into() });
    }
    let known = installed.iter().map(|model| model.name.as_str()).chain(ENTRIES.iter().map(|e| e.name.as_str()));
    let hint = match closest(name, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => "; `sipllm models` lists them, and `sipllm help` the commands".into(),
    };
    Err(ResolveError::Unknown { name: name.into(), hint })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_is_sound() {
        assert!(entries().len() >= 12);
        for (index, entry) in entries().iter().enumerate() {
            assert_eq!(entry.name, entry.name.to_lowercase());
            assert!(!entries()[..index].iter().any(|e| e.name == entry.name || e.file == entry.file), "{}", entry.name);
            assert!(entry.hub.is_some() || !entry.package.is_empty(), "{} comes from somewhere", entry.name);
            assert!(entry.file.ends_with(".gguf") && !entry.file.contains('/'));
            if let Some(sum) = &entry.sha256 {
                assert!(sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            }
            // What comes out of a package was announced by nobody: only a sum of our own can guard it.
            assert!(entry.package.is_empty() || entry.sha256.is_some(), "{}", entry.name);
        }
        assert_eq!(default_entry().unwrap().file, "SmolLM2-135M-Instruct.Q4_1.gguf");
    }

    fn settings_with(files: &[&str]) -> (tempfile::TempDir, Settings) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("models")).unwrap();
        for file in files {
            std::fs::write(folder.path().join("models").join(file), b"GGUF").unwrap();
        }
        let settings = Settings { data_dir: Some(folder.path().into()), ..Settings::default() };
        (folder, settings)
    }

    fn file_of(model: Option<&str>, settings: &Settings) -> Result<String, String> {
        let found = resolve(model, settings).map_err(|error| error.to_string())?;
        Ok(found.file_name().unwrap().to_string_lossy().into_owned())
    }

    #[test]
    fn a_name_is_a_path_a_catalog_name_a_file_name_or_the_beginning_of_one() {
        let smol = "SmolLM2-135M-Instruct.Q4_1.gguf";
        let (folder, settings) = settings_with(&[smol, "My-Model.gguf", "other.gguf"]);
        for name in ["smollm2-135m", "SMOLLM2-135M", "smollm2-135m-instruct.q4_1", smol, "smol"] {
            assert_eq!(file_of(Some(name), &settings), Ok(smol.into()), "{name}");
        }
        assert_eq!(file_of(Some("my"), &settings), Ok("My-Model.gguf".into()));
        let path = folder.path().join("models/other.gguf");
        assert_eq!(file_of(path.to_str(), &settings), Ok("other.gguf".into()));
    }

    #[test]
    fn what_no_name_means_says_what_to_do() {
        let (folder, settings) = settings_with(&["aa.gguf", "ab.gguf"]);
        let why = |name: &str| file_of(Some(name), &settings).unwrap_err();
        assert_eq!(why("a"), "`a` could be aa or ab; write more of the name");
        assert_eq!(why("qwen3-0.6b"), "qwen3-0.6b is not here yet; `sipllm pull qwen3-0.6b` fetches it");
        assert_eq!(why("qwen3-0.6c"), "no model is called `qwen3-0.6c`; did you mean `qwen3-0.6b`?");
        for empty in ["", " ", "\t\n"] {
            assert!(why(empty).starts_with("the name of the model is empty"), "{empty:?}");
            assert_eq!(find(empty), None);
        }
        assert_eq!(why("x.gguf"), "x.gguf: no such file");
        assert_eq!(why("./x"), "./x: no such file");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.to_str().unwrap(), "/dev/zero"] {
            assert_eq!(why(path), format!("{path} is a pipe or a device, not a file; name a .gguf file"));
        }
        assert!(why(folder.path().to_str().unwrap()).ends_with("is a folder; name a .gguf file"));
        assert!(why("zzz\u{1b}[31m").starts_with("no model is called `zzz"));
        assert!(!why("zzz\u{1b}[31m\n").contains(['\u{1b}', '\n']));
    }

    #[test]
    fn without_a_name_the_one_in_the_settings_or_the_last_one_fetched_is_meant() {
        let (_folder, settings) = settings_with(&["one.gguf"]);
        assert_eq!(file_of(None, &settings), Ok("one.gguf".into()));
        let (_folder, settings) = settings_with(&[]);
        assert!(matches!(resolve(None, &settings), Err(ResolveError::NoneInstalled { .. })));
        let (folder, mut settings) = settings_with(&["one.gguf", "three.gguf", "two.gguf"]);
        let file = std::fs::File::options().append(true).open(folder.path().join("models/three.gguf")).unwrap();
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(file_of(None, &settings), Ok("three.gguf".into()));
        settings.model = Some("two".into());
        assert_eq!(file_of(None, &settings), Ok("two.gguf".into()));
    }
}
