//! Timelines as files: which format a name asks for, and its bytes.

use crate::tracks::Tracks;
use crate::{chrome, perfetto};
use ahbm_findings::Diagnostic;
use std::path::Path;

/// How tracks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// [`crate::perfetto`]
    Perfetto,
    /// [`crate::chrome`]
    Chrome,
}

impl Format {
    /// The format that the name of a file asks for.
    ///
    /// # Errors
    /// `AHBM-C149` unless it ends in `.pftrace` or `.json`.
    pub fn of(path: &Path) -> Result<Self, Diagnostic> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("pftrace") => Ok(Self::Perfetto),
            Some("json") => Ok(Self::Chrome),
            _ => Err(Diagnostic::new("AHBM-C149", format!("{} is no name of a timeline file", path.display()))
                .hint("out.pftrace for Perfetto, out.json for Chrome's trace-event format")),
        }
    }

    /// The bytes of the file.
    pub fn render(self, tracks: &Tracks) -> Vec<u8> {
        match self {
            Self::Perfetto => perfetto::render(tracks),
            Self::Chrome => chrome::render(tracks).into_bytes(),
        }
    }
}
