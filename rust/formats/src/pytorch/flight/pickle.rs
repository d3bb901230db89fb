//! Pickles of plain values, without objects: dictionaries, lists, tuples, texts, numbers.
//!
//! Source of the operations: CPython, `Lib/pickletools.py`, protocols 2 to 5. What would import, call or build anything is
//! refused, and so is a list or a dictionary that stands in itself, or that is changed where it stands a second time.

use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value as Json};

use super::malformed;

/// A value with what it costs to have it once more.
#[derive(Clone)]
struct Nested {
    value: Json,
    /// How many lists and dictionaries are in each other.
    nested: u64,
    /// Values in it, with itself.
    count: u64,
    /// Bytes of texts in it.
    texts: u64,
    /// As what it is kept once it has its values: a list or a dictionary that stands in several places.
    kept: Option<u64>,
    /// Whether it stands somewhere else, too.
    again: bool,
}

impl Nested {
    fn plain(value: Json) -> Self {
        let texts = if let Json::String(text) = &value { text.len() as u64 } else { 0 };
        Self { value, nested: 0, count: 1, texts, kept: None, again: false }
    }

    fn empty(value: Json) -> Self {
        Self { nested: 1, ..Self::plain(value) }
    }

    /// Takes the costs of what it holds.
    fn holds(&mut self, items: &[Self]) {
        for item in items {
            self.nested = self.nested.max(1 + item.nested);
            self.count = self.count.saturating_add(item.count);
            self.texts = self.texts.saturating_add(item.texts);
        }
    }
}

struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
    budget: Budget,
    stack: Vec<Nested>,
    marks: Vec<usize>,
    /// What was kept of what is fetched; none for what has not its values yet, and for what is not fetched.
    memo: FxHashMap<u64, Option<Nested>>,
    /// What is fetched.
    wanted: FxHashSet<u64>,
    /// Whether the last operation made an empty list or dictionary.
    opened: bool,
    values: u64,
    /// Bytes of texts, those that were fetched again included.
    texts: u64,
}

/// The value that a pickle has.
pub(super) fn value(file: &str, bytes: &[u8], budget: Budget) -> Result<Json, Diagnostic> {
    let (stack, marks, memo) = (Vec::new(), Vec::new(), FxHashMap::default());
    let wanted = fetched(bytes);
    let mut reader =
        Reader { file, bytes, at: 0, budget, stack, marks, memo, wanted, opened: false, values: 0, texts: 0 };
    while reader.step()? {}
    match (reader.stack.pop(), reader.stack.is_empty()) {
        (Some(found), true) => Ok(found.value),
        _ => Err(reader.wrong("it does not end with one value")),
    }
}

/// What a pickle fetches of what it keeps, up to the first operation that is none of plain values.
fn fetched(bytes: &[u8]) -> FxHashSet<u64> {
    let mut found = FxHashSet::default();
    let mut at = 0;
    let number = |at: usize, count: usize| {
        let part = bytes.get(at..at.saturating_add(count))?;
        Some(part.iter().rev().fold(0, |sum: u64, &byte| sum << 8 | u64::from(byte)))
    };
    while let Some(&operation) = bytes.get(at) {
        at += 1;
        let width = match operation {
            b'.' => break,
            0x80 | b'K' | b'q' | b'h' | 0x8a | 0x8c => 1,
            b'M' => 2,
            b'J' | b'r' | b'j' | b'X' => 4,
            0x95 | b'G' | 0x8d => 8,
            _ => 0,
        };
        let Some(said) = number(at, width) else { break };
        at += width;
        match operation {
            b'h' | b'j' => drop(found.insert(said)),
            0x8a | 0x8c | 0x8d | b'X' => at = usize::try_from(said).map_or(bytes.len(), |more| at.saturating_add(more)),
            _ => {}
        }
    }
    found
}

impl Reader<'_> {
    /// Takes one operation; false for the last.
    fn step(&mut self) -> Result<bool, Diagnostic> {
        let operation = self.take(1)?[0];
        let opened = std::mem::replace(&mut self.opened, matches!(operation, b'}' | b']'));
        match operation {
            b'.' => return Ok(false),
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Nested::plain(Json::Null))?,
            0x88 => self.push(Nested::plain(Json::Bool(true)))?,
            0x89 => self.push(Nested::plain(Json::Bool(false)))?,
            b'K' => {
                let number = self.number(1)?;
                self.push(Nested::plain(number.into()))?;
            }
            b'M' => {
                let number = self.number(2)?;
                self.push(Nested::plain(number.into()))?;
            }
            b'J' => {
                let number = self.number(4)? as u32 as i32;
                self.push(Nested::plain(number.into()))?;
            }
            0x8a => {
                let long = self.long()?;
                self.push(Nested::plain(long))?;
            }
            b'G' => {
                let bytes = self.take(8)?.try_into().unwrap_or_default();
                self.push(Nested::plain(f64::from_be_bytes(bytes).into()))?;
            }
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            b'q' => {
                let key = self.number(1)?;
                self.keep(key, opened)?;
            }
            b'r' => {
                let key = self.number(4)?;
                self.keep(key, opened)?;
            }
            0x94 => self.keep(self.memo.len() as u64, opened)?,
            b'h' => {
                let key = self.number(1)?;
                self.fetch(key)?;
            }
            b'j' => {
                let key = self.number(4)?;
                self.fetch(key)?;
            }
            b'}' => self.push(Nested::empty(Json::Object(Map::new())))?,
            b']' | b')' => self.push(Nested::empty(Json::Array(Vec::new())))?,
            b't' => {
                let items = self.marked()?;
                self.tuple(items)?;
            }
            0x85..=0x87 => {
                let items = self.last(usize::from(operation - 0x84))?;
                self.tuple(items)?;
            }
            b'a' | b'e' => {
                let items = if operation == b'a' { self.last(1)? } else { self.marked()? };
                self.append(items)?;
            }
            b's' | b'u' => {
                let items = if operation == b's' { self.last(2)? } else { self.marked()? };
                self.set(items)?;
            }
            other => return Err(self.wrong(&format!("operation {other:#04x} is none of plain values"))),
        }
        Ok(true)
    }

    fn take(&mut self, count: usize) -> Result<&[u8], Diagnostic> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else { return Err(self.wrong("the pickle ends within an operation")) };
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    /// A whole number of so many bytes, the lowest first.
    fn number(&mut self, count: usize) -> Result<u64, Diagnostic> {
        Ok(self.take(count)?.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn long(&mut self) -> Result<Json, Diagnostic> {
        let count = self.number(1)? as usize;
        if count > 8 {
            return Err(self.wrong("a number of more than 8 bytes"));
        }
        let number = self.number(count)?;
        let unused = 64 - 8 * count as u32;
        Ok(if count == 0 { 0.into() } else { ((number << unused) as i64 >> unused).into() })
    }

    fn text(&mut self, width: usize) -> Result<(), Diagnostic> {
        let length = self.number(width)?;
        self.budget.check(Limit::StringBytes, length)?;
        let text = String::from_utf8_lossy(self.take(length as usize)?).into_owned();
        self.push(Nested::plain(text.into()))
    }

    fn push(&mut self, item: Nested) -> Result<(), Diagnostic> {
        self.pay(&item)?;
        self.stack.push(item);
        Ok(())
    }

    fn pay(&mut self, item: &Nested) -> Result<(), Diagnostic> {
        self.values = self.values.saturating_add(item.count);
        self.texts = self.texts.saturating_add(item.texts);
        self.budget.check(Limit::Steps, self.values)?;
        self.budget.check(Limit::InflatedBytes, self.texts)?;
        self.budget.check(Limit::Nesting, item.nested)
    }

    fn keep(&mut self, key: u64, opened: bool) -> Result<(), Diagnostic> {
        let wanted = self.wanted.contains(&key);
        let Some(item) = self.stack.last_mut() else { return Err(self.wrong("nothing is there to be kept")) };
        let kept = (wanted && !opened).then(|| item.clone());
        if wanted && opened {
            item.kept = Some(key);
        }
        if let Some(kept) = &kept {
            self.pay(kept)?;
        }
        self.memo.insert(key, kept);
        Ok(())
    }

    /// Keeps lists and dictionaries that have their values, as they are taken from the stack.
    fn complete(&mut self, items: &[Nested]) -> Result<(), Diagnostic> {
        for item in items {
            if let Some(key) = item.kept {
                self.pay(item)?;
                self.memo.insert(key, Some(Nested { kept: None, ..item.clone() }));
            }
        }
        Ok(())
    }

    fn fetch(&mut self, key: u64) -> Result<(), Diagnostic> {
        match self.memo.get(&key).cloned() {
            Some(Some(item)) => self.push(Nested { again: true, ..item }),
            Some(None) => {
                // It is on the stack: among the values of what holds it, or open, and then what is added to it is refused.
                let Some(item) = self.stack.iter_mut().rev().find(|item| item.kept == Some(key)) else {
                    return Err(self.wrong("what is fetched was not kept"));
                };
                item.again = true;
                let item = Nested { kept: None, ..item.clone() };
                self.push(item)
            }
            None => Err(self.wrong("what is fetched was not kept")),
        }
    }

    /// The last values.
    fn last(&mut self, count: usize) -> Result<Vec<Nested>, Diagnostic> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count).filter(|&at| at >= floor) {
            Some(at) => {
                let items = self.stack.split_off(at);
                self.complete(&items)?;
                Ok(items)
            }
            None => Err(self.wrong("a value is missing")),
        }
    }

    /// The values since the last mark.
    fn marked(&mut self) -> Result<Vec<Nested>, Diagnostic> {
        match self.marks.pop() {
            Some(at) => {
                let items = self.stack.split_off(at);
                self.complete(&items)?;
                Ok(items)
            }
            None => Err(self.wrong("a mark is missing")),
        }
    }

    fn tuple(&mut self, items: Vec<Nested>) -> Result<(), Diagnostic> {
        let mut list = Nested::empty(Json::Null);
        list.holds(&items);
        list.value = items.into_iter().map(|item| item.value).collect();
        // What it holds was paid for.
        self.pay(&Nested { count: 1, texts: 0, value: Json::Null, kept: None, ..list })?;
        self.stack.push(list);
        Ok(())
    }

    fn append(&mut self, items: Vec<Nested>) -> Result<(), Diagnostic> {
        let Some(Nested { value: Json::Array(_), again: false, .. }) = self.stack.last() else {
            return Err(self.wrong("no list is there to be added to, or one that stands in two places"));
        };
        if let Some(list) = self.stack.last_mut() {
            list.holds(&items);
            self.budget.check(Limit::Nesting, list.nested)?;
            if let Json::Array(values) = &mut list.value {
                values.extend(items.into_iter().map(|item| item.value));
            }
        }
        Ok(())
    }

    fn set(&mut self, items: Vec<Nested>) -> Result<(), Diagnostic> {
        if items.len() % 2 == 1 {
            return Err(self.wrong("a key has no value"));
        }
        let Some(Nested { value: Json::Object(_), again: false, .. }) = self.stack.last() else {
            return Err(self.wrong("no dictionary is there to be added to, or one that stands in two places"));
        };
        let is_key = |item: &Nested| matches!(item.value, Json::String(_) | Json::Number(_));
        if !items.iter().step_by(2).all(is_key) {
            return Err(self.wrong("a key is neither a text nor a number"));
        }
        if let Some(map) = self.stack.last_mut() {
            map.holds(&items);
            self.budget.check(Limit::Nesting, map.nested)?;
            let mut items = items.into_iter().map(|item| item.value);
            if let Json::Object(values) = &mut map.value {
                while let Some(said) = items.next() {
                    let key = if let Json::String(text) = said { text } else { said.to_string() };
                    values.insert(key, items.next().unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> Diagnostic {
        malformed(self.file, self.at as u64, what)
    }
}
