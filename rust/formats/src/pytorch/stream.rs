//! The elements of one array of a JSON document, one after the other, from a file that need not fit into memory.

use super::{Options, Usage};
use crate::packed::Packing;
use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};
use serde::de::Deserialize;
use std::borrow::Cow;
use std::io::{BufReader, Read};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 18;

/// The most that one element, or one member beside the array, may take.
const LONGEST: usize = 1 << 24;

/// The byte order mark of UTF-8, which editors write before a document.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";

/// A JSON document that is being read.
pub(super) struct Stream<'a> {
    file: &'a str,
    reader: Box<dyn Read + 'a>,
    packing: Option<Packing>,
    options: &'a Options,
    usage: &'a mut Usage,
    /// Inflated bytes of this file that may still be read before the limits on inflation are looked at.
    size: u64,
    inflated: u64,
    buffer: Vec<u8>,
    at: usize,
    /// Offset of the buffer in the document.
    base: u64,
}

/// What a document has: an element of the array, or a member beside it.
pub(super) enum Part<'a> {
    Element(&'a [u8]),
    Member(&'a str, &'a [u8]),
}

impl<'a> Stream<'a> {
    /// `size` is that of the file.
    pub(super) fn new(
        file: &'a str,
        bytes: impl Read + 'a,
        size: u64,
        options: &'a Options,
        usage: &'a mut Usage,
    ) -> Result<Self, Diagnostic> {
        usage.file_bytes = usage.file_bytes.saturating_add(size);
        options.budget.check(Limit::FileBytes, usage.file_bytes)?;
        let mut bytes = BufReader::with_capacity(CHUNK, bytes.take(size));
        let packing = std::io::BufRead::fill_buf(&mut bytes).ok().and_then(Packing::of);
        let reader: Box<dyn Read + 'a> = match packing {
            Some(packing) => packing.reader(bytes),
            None => Box::new(bytes),
        };
        Ok(Self { file, reader, packing, options, usage, size, inflated: 0, buffer: Vec::new(), at: 0, base: 0 })
    }

    /// The limits.
    pub(super) fn budget(&self) -> Budget {
        self.options.budget
    }

    /// The whole document.
    pub(super) fn whole(mut self) -> Result<Vec<u8>, Diagnostic> {
        while self.fill()? > 0 {}
        Ok(self.buffer)
    }

    /// Gives every element of the array `wanted` of the top level but nulls, and every member beside it, with its offset;
    /// whether there was such an array.
    pub(super) fn each(
        mut self,
        wanted: &str,
        mut part: impl FnMut(Part<'_>, u64) -> Result<(), Diagnostic>,
    ) -> Result<bool, Diagnostic> {
        let mut found = false;
        if self.peek()? == Some(MARK[0]) && self.buffer[self.at..].starts_with(MARK) {
            self.at += MARK.len();
        }
        self.expect(b'{', "an object")?;
        let mut first = true;
        while self.more(b'}', &mut first)? {
            if self.peek()? != Some(b'"') {
                return Err(self.wrong("a member has no name"));
            }
            let (start, end) = self.value()?;
            let name = String::from_utf8_lossy(&self.buffer[start + 1..end - 1]).into_owned();
            self.at = end;
            self.expect(b':', "a colon")?;
            if name == wanted && self.peek()? == Some(b'[') {
                self.at += 1;
                found = true;
                let mut first = true;
                while self.more(b']', &mut first)? {
                    self.usage.elements += 1;
                    self.options.budget.check(Limit::Steps, self.usage.elements)?;
                    let (start, end) = self.value()?;
                    // Who writes a comma behind the last element ends the array with a null.
                    if &self.buffer[start..end] != b"null" {
                        part(Part::Element(&self.buffer[start..end]), self.base + start as u64)?;
                    }
                    self.at = end;
                }
            } else {
                let (start, end) = self.value()?;
                part(Part::Member(&name, &self.buffer[start..end]), self.base + start as u64)?;
                self.at = end;
            }
        }
        match self.peek()? {
            None => Ok(found),
            Some(_) => Err(self.wrong("something follows the document")),
        }
    }

    /// Whether a list that `end` closes goes on; takes what stands before its next entry.
    fn more(&mut self, end: u8, first: &mut bool) -> Result<bool, Diagnostic> {
        let found = self.peek()?;
        if found == Some(end) {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::take(first) {
            self.expect(b',', "a comma")?;
            self.peek()?;
        }
        Ok(true)
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), Diagnostic> {
        if self.peek()? != Some(byte) {
            return Err(self.wrong(&format!("{what} is missing")));
        }
        self.at += 1;
        Ok(())
    }

    /// The next byte that is no white space; none at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Diagnostic> {
        loop {
            match self.buffer.get(self.at).copied() {
                Some(byte) if byte.is_ascii_whitespace() => self.at += 1,
                Some(byte) => return Ok(Some(byte)),
                None if self.fill()? == 0 => return Ok(None),
                None => {}
            }
        }
    }

    /// The bytes of the next value, as a range of the buffer.
    fn value(&mut self) -> Result<(usize, usize), Diagnostic> {
        self.peek()?;
        let (mut length, mut depth, mut quoted) = (0, 0u64, false);
        loop {
            let Some(&byte) = self.buffer.get(self.at + length) else {
                if self.fill()? == 0 {
                    return Err(self.wrong("the document ends within a value"));
                }
                if length > LONGEST {
                    return Err(self.wrong(&format!("a value of more than {LONGEST} bytes")));
                }
                continue;
            };
            length += 1;
            if quoted {
                match byte {
                    b'\\' => length += 1,
                    b'"' => quoted = false,
                    _ => {}
                }
                if quoted || depth > 0 {
                    continue;
                }
                return Ok((self.at, self.at + length));
            }
            match byte {
                b'"' => quoted = true,
                b'{' | b'[' => {
                    depth += 1;
                    self.options.budget.check(Limit::Nesting, depth + 2)?;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok((self.at, self.at + length));
                    }
                }
                _ if depth > 0 => {}
                b'}' | b']' | b',' | b':' if length == 1 => return Err(self.wrong("a value is missing")),
                b'}' | b']' | b',' | b':' => return Ok((self.at, self.at + length - 1)),
                byte if byte.is_ascii_whitespace() => return Ok((self.at, self.at + length - 1)),
                _ => {}
            }
        }
    }

    /// Reads on behind what is buffered; forgets what lies before the place.
    fn fill(&mut self) -> Result<usize, Diagnostic> {
        self.buffer.drain(..self.at);
        self.base += self.at as u64;
        self.at = 0;
        let had = self.buffer.len();
        self.buffer.resize(had + CHUNK, 0);
        let read = self.reader.read(&mut self.buffer[had..]);
        self.buffer.truncate(had + read.as_ref().map_or(0, |&count| count));
        let read = read.map_err(|error| {
            match self.packing {
                Some(packing) => Diagnostic::new("AHBM-F132", format!("broken {} stream: {error}", packing.name())),
                None => Diagnostic::new("AHBM-F139", format!("the file cannot be read: {error}")),
            }
            .site("after", format!("{}, inflated byte {}", self.file, self.inflated))
        })?;
        self.inflated += read as u64;
        self.usage.inflated_bytes += read as u64;
        let budget = &self.options.budget;
        if self.inflated > self.size.saturating_mul(budget.get(Limit::InflationRatio)) {
            budget.check(Limit::InflationRatio, self.inflated.div_ceil(self.size.max(1)))?;
        }
        budget.check(Limit::InflatedBytes, self.usage.inflated_bytes)?;
        Ok(read)
    }

    fn wrong(&self, what: &str) -> Diagnostic {
        malformed(self.file, self.base + self.at as u64, what)
    }
}

/// Bytes that are no trace of PyTorch.
pub(super) fn malformed(file: &str, offset: u64, what: &str) -> Diagnostic {
    Diagnostic::new("AHBM-F183", format!("no trace of PyTorch: {what}"))
        .site("reading", format!("{file}, byte {offset}"))
}

/// Parses a value. Profilers write numbers that are none and names that are no UTF-8: such numbers are null.
pub(super) fn parsed<T>(
    bytes: &[u8],
    mut found: impl FnMut(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    found(bytes).or_else(|error| match mended(bytes) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(text) => found(text.as_bytes()),
    })
}

/// As [`parsed`], of what owns its text.
pub(super) fn owned<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    parsed(bytes, |bytes| serde_json::from_slice(bytes))
}

/// The text with bare words other than JSON's as null, owned where anything was mended.
fn mended(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut changed) = (&*text, matches!(text, Cow::Owned(_)));
    while let Some(first) = rest.chars().next() {
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        let length = if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        } else if bare(first) {
            rest.find(|c| !bare(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(length);
        let word = token.trim_start_matches(['-', '+']);
        let not_a_number = ["nan", "inf", "infinity"].iter().any(|known| word.eq_ignore_ascii_case(known));
        out.push_str(if not_a_number { "null" } else { token });
        changed |= not_a_number;
        rest = behind;
    }
    if changed { Cow::Owned(out) } else { Cow::Borrowed("") }
}
