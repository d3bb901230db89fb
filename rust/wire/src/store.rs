//! Files that are written whole or not at all.

use ahbm_machine::Diagnostic;
use std::fs;
use std::path::{Path, PathBuf};

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its destination.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Writes every file beside its place and then moves all of them there, so that a failure while writing leaves what
/// was there before. Folders must exist.
///
/// # Errors
/// `AHBM-F102` what the file system reports.
pub fn store(files: &[Output]) -> Result<(), Diagnostic> {
    let failed = |path: &Path, error: std::io::Error| {
        Diagnostic::new("AHBM-F102", format!("{} cannot be written: {error}", path.display()))
    };
    let mut beside = Vec::with_capacity(files.len());
    let written = files.iter().try_for_each(|file| {
        let mut name = std::ffi::OsString::from(".");
        name.push(file.path.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        beside.push(file.path.with_file_name(name));
        fs::write(&beside[beside.len() - 1], &file.bytes).map_err(|error| failed(&file.path, error))
    });
    let moved = written.and_then(|()| {
        let mut pairs = files.iter().zip(&beside);
        pairs.try_for_each(|(file, part)| fs::rename(part, &file.path).map_err(|error| failed(&file.path, error)))
    });
    if moved.is_err() {
        // Those that were moved are gone already; the error that matters is the first one.
        beside.iter().for_each(|part| drop(fs::remove_file(part)));
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_or_none() {
        let folder = std::env::temp_dir().join(format!("ahbm-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let output = |name: &str, text: &str| Output { path: folder.join(name), bytes: text.into() };
        store(&[output("a", "old")]).unwrap();
        let error = store(&[output("a", "new"), output("missing/b", "new")]).unwrap_err();
        assert_eq!(error.code, "AHBM-F102");
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        store(&[output("a", "new")]).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "new");
        fs::remove_dir_all(&folder).unwrap();
    }
}
