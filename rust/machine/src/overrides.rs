//! Command-line overrides: dotted paths written into the tree before anything is judged.

use crate::declared::shorten;
use ahbm_findings::Diagnostic;
use ahbm_wire::yaml::{At, Tree, Value, parse};

const MAX_PATH: usize = 1024;

/// Writes one override into the tree. Its nodes carry the override as their origin, so a misspelt path
/// is reported like a misspelt key.
pub(crate) fn apply(root: &mut Tree, index: usize, path: &str, text: &str) -> Result<(), Diagnostic> {
    let at = At::Override(index as u32);
    let origin = format!("override {}={}", shorten(path), shorten(text));
    let refuse = |message: String, hint: &str| {
        Diagnostic::new("AHBM-T011", message).site(shorten(path), origin.clone()).hint(hint)
    };
    let keys: Vec<&str> = path.split('.').collect();
    if path.len() > MAX_PATH || keys.len() > 16 || keys.iter().any(|key| key.is_empty()) {
        return Err(refuse(
            format!("`{}` is not a dotted path", shorten(path)),
            "for example ipcq.tiers.tcm.bandwidth_gbs=512",
        ));
    }
    let mut value = parse(text, &origin)?;
    stamp(&mut value, at);
    let mut node = root;
    for key in keys {
        if matches!(node.value, Value::Null) {
            *node = Tree { at, value: Value::Map(Vec::new()) };
        }
        node = match &mut node.value {
            Value::Map(entries) => {
                let found = entries.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
                    entries.push((key.to_owned(), Tree { at, value: Value::Null }));
                    entries.len() - 1
                });
                &mut entries[found].1
            }
            Value::List(items) => {
                let length = items.len();
                match key.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                    Some(item) => item,
                    None => {
                        let message = format!("`{}` is not an item of a list of {length}", shorten(key));
                        return Err(refuse(message, "items are counted from 0; give the whole list to lengthen it"));
                    }
                }
            }
            other => {
                let message = format!("`{}` stands below {}", shorten(key), other.kind());
                return Err(refuse(message, "set the enclosing key to a mapping, or remove it"));
            }
        };
    }
    *node = value;
    Ok(())
}

fn stamp(node: &mut Tree, at: At) {
    node.at = at;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| stamp(item, at)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, value)| stamp(value, at)),
        _ => {}
    }
}
