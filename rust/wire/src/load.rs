//! Files that a user names, read whole and never more than a bound.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The bytes of a regular file, at most `most` and one more: the caller tells that a file is longer.
///
/// # Errors
/// What the file system reports, and anything else than a regular file: a pipe may never end, or never begin.
pub fn load(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Before it is opened: to open a pipe waits for who writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_and_one_and_regular_files_alone() {
        let path = std::env::temp_dir().join(format!("ahbm-load-{}", std::process::id()));
        fs::write(&path, "abcdef").unwrap();
        assert_eq!(load(&path, 10).unwrap(), b"abcdef");
        assert_eq!(load(&path, 3).unwrap(), b"abcd");
        fs::remove_file(&path).unwrap();
        for other in [std::env::temp_dir(), "/dev/zero".into(), path] {
            assert!(load(&other, 10).is_err(), "{}", other.display());
        }
    }
}
