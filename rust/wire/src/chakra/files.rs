//! Names of a trace's files: `<prefix>.<rank>.et`.

use ahbm_findings::Diagnostic;
use std::path::{Path, PathBuf};

/// The prefix that a path ends in: `ring` for `ring`, `ring.et` and `ring.3.et`. `kind` is what files end in.
pub fn prefix<'a>(path: &'a Path, kind: &str) -> &'a str {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    split(name, kind).map_or(name.strip_suffix(kind).unwrap_or(name), |(prefix, _)| prefix)
}

/// `ring.3.et` is rank 3 of `ring`; ranks have no padding.
pub fn split<'a>(name: &'a str, kind: &str) -> Option<(&'a str, u32)> {
    let (prefix, rank) = name.strip_suffix(kind)?.rsplit_once('.')?;
    let number: u32 = rank.parse().ok()?;
    (number.to_string() == rank).then_some((prefix, number))
}

/// The file of a rank.
pub fn of_rank(path: &Path, rank: usize) -> PathBuf {
    path.with_file_name(format!("{}.{rank}.et", prefix(path, ".et")))
}

/// A trace of `ranks` ranks has no file of a further one.
///
/// # Errors
/// `AHBM-F139` where that file exists: both together would be read as one trace.
pub fn refuse_foreign(path: &Path, ranks: usize) -> Result<(), Diagnostic> {
    let foreign = of_rank(path, ranks);
    if foreign.exists() {
        return Err(Diagnostic::new("AHBM-F139", format!("{} belongs to another trace", foreign.display()))
            .hint("delete that trace, or write to another prefix"));
    }
    Ok(())
}
