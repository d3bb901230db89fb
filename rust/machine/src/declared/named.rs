//! Sections whose keys the user names: `ipcq.tiers` and `protocols`.

use super::Reader;
use super::reader::shorten;
use ahbm_wire::yaml::Tree;
use indexmap::IndexMap;

const MOST: usize = 64;
const MAX_NAME: usize = 64;

/// Reads entries over those of the same name; `what` one of them is, and how to merge it. `None` for a section that is no
/// mapping, or has too many entries.
pub(super) fn read<T: Default>(
    mut found: IndexMap<String, T>,
    node: &Tree,
    reader: &mut Reader<'_>,
    what: &str,
    merge: impl Fn(&mut T, &Tree, &mut Reader<'_>),
) -> Option<IndexMap<String, T>> {
    for (name, node) in reader.entries(node)? {
        let shown = shorten(name);
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
            reader.within(&shown, node.at, |reader| {
                let message = format!("`{shown}` cannot name a {what}");
                reader.report(node.at, "AHBM-T005", message, Some("use letters, digits, _ and -".to_owned()));
            });
            continue;
        }
        if found.len() >= MOST && !found.contains_key(name) {
            reader.report(node.at, "AHBM-T002", format!("more than {MOST} {what}s"), None);
            return None;
        }
        let entry = found.entry(name.clone()).or_default();
        reader.within(&shown, node.at, |reader| merge(entry, node, reader));
    }
    Some(found)
}
