//! Files that are written whole or not at all.

use ahbm_findings::Diagnostic;
use std::borrow::Borrow;
use std::fs::{self, File};
use std::io::{self, Write};
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
/// was there before. Each file is made when its turn comes, and dropped once it is written. Folders must exist. A link stays a link; a path that is no regular file (a pipe, a device) is
/// written to as it is.
///
/// # Errors
/// `AHBM-F102` what the file system reports.
pub fn store<T: Borrow<Output>>(files: impl IntoIterator<Item = T>) -> Result<(), Diagnostic> {
    let failed = |path: &Path, error: io::Error| {
        Diagnostic::new("AHBM-F102", format!("{} cannot be written: {error}", path.display()))
    };
    let mut beside: Vec<(PathBuf, PathBuf)> = Vec::new();
    let written = files.into_iter().try_for_each(|file| {
        let file: &Output = file.borrow();
        let target = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        if target.exists() && !target.is_file() {
            return special(&target, &file.bytes).map_err(|error| failed(&file.path, error));
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        let part = target.with_file_name(name);
        beside.push((part.clone(), target.clone()));
        whole(&part, &target, &file.bytes).map_err(|error| failed(&file.path, error))
    });
    let moved = written.and_then(|()| {
        beside.iter().try_for_each(|(part, target)| fs::rename(part, target).map_err(|error| failed(target, error)))
    });
    if moved.is_err() {
        // Those that were moved are gone already; the error that matters is the first one.
        beside.iter().for_each(|(part, _)| drop(fs::remove_file(part)));
    }
    moved
}

/// Writes to what is no regular file.
fn special(target: &Path, bytes: &[u8]) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
        /// `O_NONBLOCK`: to open a pipe fails where nobody reads it.
        const AT_ONCE: i32 = if cfg!(target_os = "linux") { 0o4000 } else { 0o4 };
        let kind = fs::metadata(target)?.file_type();
        if kind.is_block_device() {
            return Err(io::Error::other("it is a disk"));
        }
        if kind.is_fifo() {
            let open = fs::OpenOptions::new().write(true).custom_flags(AT_ONCE).open(target);
            let mut pipe = open.map_err(|_| io::Error::other("it is a pipe that nobody reads"))?;
            let mut left = bytes;
            while !left.is_empty() {
                match pipe.write(left) {
                    Ok(written) => left = &left[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    Err(error) => return Err(error),
                }
            }
            return Ok(());
        }
    }
    fs::write(target, bytes)
}

/// Writes `part` to the disk, with the permissions of the `target` that it is to replace.
fn whole(part: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match fs::metadata(target) {
        Ok(replaced) => file.set_permissions(replaced.permissions()),
        Err(_) => Ok(()),
    }
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

    #[test]
    #[cfg(unix)]
    fn a_link_stays_a_link_and_a_device_a_device() {
        let folder = std::env::temp_dir().join(format!("ahbm-store-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [real, link] = ["real", "link"].map(|name| folder.join(name));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        store(&[Output { path: link.clone(), bytes: b"new".into() }]).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        store(&[Output { path: "/dev/null".into(), bytes: b"nothing".into() }]).unwrap();
        assert!(!Path::new("/dev/null").is_file());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_pipe_needs_a_reader() {
        let folder = std::env::temp_dir().join(format!("ahbm-store-pipe-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let output = Output { path: pipe.clone(), bytes: b"read".into() };
        assert!(store(std::slice::from_ref(&output)).unwrap_err().message.ends_with("it is a pipe that nobody reads"));
        let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
        while store(std::slice::from_ref(&output)).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(reader.join().unwrap(), "read");
        fs::remove_dir_all(&folder).unwrap();
    }
}
