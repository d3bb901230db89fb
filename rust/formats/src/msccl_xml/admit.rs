//! One pass over an XML text before anything is allocated for it: what its parser is not linear in is bounded.

use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};

/// Bounds size, number of nodes, depth, and the attributes of an element; returns the bytes as text. Malformed text
/// passes: its parser says what is wrong.
///
/// Namespaces of a whole document are bounded as the attributes of one element are: every element inherits them all.
pub(super) fn admit<'a>(bytes: &'a [u8], file: &str, budget: &Budget) -> Result<&'a str, Diagnostic> {
    budget.check(Limit::FileBytes, bytes.len() as u64)?;
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Diagnostic::new("AHBM-F110", format!("not UTF-8 text at byte {at}")).site("plan", format!("{file} byte {at}"))
    })?;
    let (mut nodes, mut depth, mut deepest, mut namespaces, mut at) = (0u64, 0u64, 0u64, 0u64, 0);
    while let Some(open) = bytes[at..].iter().position(|&byte| byte == b'<') {
        let start = at + open;
        let rest = &bytes[start..];
        nodes += 1;
        at = start
            + if rest.starts_with(b"<!--") {
                past(rest, 4, b"-->")
            } else if rest.starts_with(b"<![CDATA[") {
                past(rest, 9, b"]]>")
            } else if rest.starts_with(b"<?") {
                past(rest, 2, b"?>")
            } else if rest.starts_with(b"</") {
                nodes -= 1;
                depth = depth.saturating_sub(1);
                past(rest, 2, b">")
            } else {
                let tag = Tag::of(rest);
                namespaces += tag.namespaces;
                budget.check(Limit::Attributes, tag.attributes.max(namespaces)).map_err(|error| {
                    let line = 1 + bytes[..start].iter().filter(|&&byte| byte == b'\n').count();
                    error.site("plan", format!("{file}:{line}"))
                })?;
                deepest = deepest.max(depth + 1);
                depth += u64::from(!tag.empty);
                tag.bytes
            };
    }
    budget.check(Limit::Steps, nodes)?;
    budget.check(Limit::Nesting, deepest)?;
    Ok(text)
}

/// Bytes up to and including `end`, which is looked for from `from` on; all of them without one.
fn past(bytes: &[u8], from: usize, end: &[u8]) -> usize {
    let tail = bytes.get(from..).unwrap_or_default();
    tail.windows(end.len()).position(|window| window == end).map_or(bytes.len(), |at| from + at + end.len())
}

/// A tag that opens an element.
struct Tag {
    /// Up to and including its `>`; up to the next `<` where it has none.
    bytes: usize,
    attributes: u64,
    /// Attributes that declare a namespace.
    namespaces: u64,
    /// Whether it closes itself.
    empty: bool,
}

impl Tag {
    fn of(bytes: &[u8]) -> Self {
        let (mut attributes, mut namespaces, mut word, mut at) = (0, 0, 1, 1);
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'>' => return Self { bytes: at + 1, attributes, namespaces, empty: bytes[at - 1] == b'/' },
                b'<' => break,
                b'=' => {
                    attributes += 1;
                    let name = bytes[word..at].trim_ascii_end();
                    let name = name.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
                    namespaces += u64::from(name.starts_with(b"xmlns"));
                    word = at + 1;
                }
                b'"' | b'\'' => {
                    at += past(&bytes[at..], 1, &[byte]);
                    word = at;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        Self { bytes: at.min(bytes.len()), attributes, namespaces, empty: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, budget: Budget) -> &'static str {
        admit(text.as_bytes(), "plan.xml", &budget).map_or_else(|error| error.code, |_| "")
    }

    fn many(count: usize, one: impl Fn(usize) -> String) -> String {
        (0..count).map(one).collect()
    }

    #[test]
    fn every_limit_is_seen_before_parsing() {
        let budget = Budget::default();
        let attributes = |count| format!("<a {}/>", many(count, |i| format!(" x{i}='{i}'")));
        assert_eq!(code(&attributes(64), budget), "");
        assert_eq!(code(&attributes(65), budget), "AHBM-B212");
        assert_eq!(code(&"<a>".repeat(64), budget), "");
        assert_eq!(code(&"<a>".repeat(65), budget), "AHBM-B208");
        for node in ["<a/>", "<!---->", "<?a?>", "<![CDATA[]]>"] {
            assert_eq!(code(&node.repeat(3), budget.with(Limit::Steps, 2)), "AHBM-B204", "{node}");
        }
        for spelled in ["xmlns:n{}='u'", "\txmlns:n{} \t = \"u\"", "x=''xmlns:n{}='u'"] {
            let text = many(65, |i| format!("<a {}/>\n", spelled.replace("{}", &i.to_string())));
            let error = admit(text.as_bytes(), "plan.xml", &budget).unwrap_err();
            assert_eq!((error.code, &*error.sites[0].origin), ("AHBM-B212", "plan.xml:65"), "{spelled}");
        }
    }

    #[test]
    fn what_is_quoted_or_commented_does_not_count() {
        let tight = Budget::default().with(Limit::Nesting, 1).with(Limit::Attributes, 1);
        assert_eq!(
            code("<a x='<b y=\"1\" z=\"2\"><c>'/><!-- <a><b><c x='' y=''> --><![CDATA[<a><b>]]><a></a>", tight),
            ""
        );
        assert_eq!(code("<a></a><a></a>", tight), "");
    }

    #[test]
    fn a_text_that_ends_anywhere_is_admitted() {
        let whole = "<?a?><!--b--><![CDATA[c]]><d e='f' g=\"h\"><i/></d>";
        for end in 0..whole.len() {
            assert_eq!(code(&whole[..end], Budget::default()), "", "{end}");
        }
    }
}
