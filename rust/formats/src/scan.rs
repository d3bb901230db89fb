//! One pass over the bytes before anything is allocated for them.

use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};

/// Bounds size, values, nesting and strings of a JSON text. Malformed text passes: its parser says what is wrong.
pub(crate) fn scan(bytes: &[u8], budget: &Budget) -> Result<(), Diagnostic> {
    budget.check(Limit::FileBytes, bytes.len() as u64)?;
    let (mut values, mut depth, mut deepest, mut longest) = (0u64, 0u64, 0u64, 0u64);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                values += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            b'"' => {
                let start = at;
                while let Some(&inside) = bytes.get(at) {
                    match inside {
                        b'"' => break,
                        b'\\' => at += 2,
                        _ => at += 1,
                    }
                }
                longest = longest.max((at - start) as u64);
                at += 1;
            }
            _ => {}
        }
    }
    budget.check(Limit::Nesting, deepest)?;
    budget.check(Limit::StringBytes, longest)?;
    budget.check(Limit::Steps, values)
}

/// What the first key of the top level says that says something. The text may end anywhere.
pub(crate) fn told<T>(bytes: &[u8], mut says: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    told_with(bytes, |key, _| says(key))
}

/// As [`told`], with what stands behind the key's colon.
pub(crate) fn told_with<'a, T>(bytes: &'a [u8], mut says: impl FnMut(&[u8], &'a [u8]) -> Option<T>) -> Option<T> {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at;
                while bytes.get(at).is_some_and(|&byte| byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                let text = bytes.get(start..at).unwrap_or_default();
                at += 1;
                let behind = bytes[at.min(bytes.len())..].trim_ascii_start().strip_prefix(b":");
                if let Some(told) = behind.filter(|_| depth == 1).and_then(|behind| says(text, behind)) {
                    return Some(told);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, budget: Budget) -> &'static str {
        scan(text.as_bytes(), &budget).map_or_else(|error| error.code, |()| "")
    }

    #[test]
    fn every_limit_is_seen_before_parsing() {
        let budget = Budget::default();
        assert_eq!(code(&"[".repeat(64), budget), "");
        assert_eq!(code(&"[".repeat(65), budget), "AHBM-B208");
        assert_eq!(code(&format!("\"{}\"", "a".repeat(5000)), budget), "AHBM-B207");
        assert_eq!(code("[1,2,3]", budget.with(Limit::Steps, 2)), "AHBM-B204");
        assert_eq!(code("[1]", budget.with(Limit::FileBytes, 2)), "AHBM-B201");
    }

    #[test]
    fn brackets_and_escaped_quotes_inside_strings_do_not_count() {
        assert_eq!(code(r#""\"[[[,,,""#, Budget::default().with(Limit::Nesting, 0).with(Limit::Steps, 0)), "");
        assert_eq!(code("\"open\\", Budget::default()), "");
    }
}
