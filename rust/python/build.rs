//! Digests the sources that times and bytes depend on, so that results of one build are not taken for those of another.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("rust/python in the workspace");
    let mut files = vec![workspace.join("Cargo.lock")];
    let crates = fs::read_dir(workspace.join("rust")).expect("the crates can be read");
    for found in crates.flatten() {
        sources(&found.path().join("src"), &mut files);
    }
    // Names with `/` on every system: they are part of the digest, and their order is.
    let mut named: Vec<(String, PathBuf)> = files.into_iter().map(|path| (name(&path, workspace), path)).collect();
    named.sort();
    // FNV-1a, 64 bits.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    for (name, path) in named {
        println!("cargo:rerun-if-changed={}", path.display());
        let content = fs::read(&path).unwrap_or_default();
        // A checkout may end its lines in another way.
        name.bytes().chain([0]).chain(content.into_iter().filter(|&byte| byte != b'\r')).for_each(&mut add);
    }
    println!("cargo:rustc-env=AHBM_SOURCES={digest:016x}");
}

fn name(path: &Path, workspace: &Path) -> String {
    let parts = path.strip_prefix(workspace).unwrap_or(path).components();
    parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The `.rs` files in a folder and below it. Cargo looks again when one comes or goes.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    println!("cargo:rerun-if-changed={}", folder.display());
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}
