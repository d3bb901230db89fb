//! The protobuf wire format, read with positions: every error knows the byte it stands at.

/// A violation of the wire format at a byte of the (inflated) file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The byte.
    pub at: usize,
    /// Says what is wrong.
    pub what: &'static str,
}

/// A cursor over one message.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    file: &'a [u8],
    at: usize,
    end: usize,
}

/// The payload of one field.
#[derive(Debug, Clone)]
pub enum Payload<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// A message, a text or packed numbers.
    Message(Reader<'a>),
}

impl<'a> Reader<'a> {
    /// Over a whole file.
    pub fn new(file: &'a [u8]) -> Self {
        Self { file, at: 0, end: file.len() }
    }

    /// The byte that is read next.
    pub fn at(&self) -> usize {
        self.at
    }

    /// True at the end of the message.
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        &self.file[self.at..self.end]
    }

    /// An error at the byte that is read next.
    ///
    /// # Errors
    /// Always.
    pub fn fail<T>(&self, what: &'static str) -> Result<T, Malformed> {
        Err(Malformed { at: self.at, what })
    }

    /// A base-128 number of at most 64 bits.
    ///
    /// # Errors
    /// A number that is longer, or that the message ends in.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.rest().first() else { return self.fail("the file ends inside a number") };
            if shift == 63 && byte > 1 {
                return self.fail("a number of more than 64 bits");
            }
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.fail("a number of more than 64 bits")
    }

    /// A length and that many bytes.
    ///
    /// # Errors
    /// A length beyond the end.
    pub fn message(&mut self) -> Result<Reader<'a>, Malformed> {
        let start = self.at;
        let length = self.varint()?;
        if length > (self.end - self.at) as u64 {
            return Err(Malformed { at: start, what: "a message longer than what is left of it" });
        }
        let inner = Reader { file: self.file, at: self.at, end: self.at + length as usize };
        self.at = inner.end;
        Ok(inner)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some(bytes) = self.rest().first_chunk::<N>() else { return self.fail("the file ends inside a number") };
        self.at += N;
        Ok(*bytes)
    }

    /// The next field with its number; `None` at the end of the message.
    ///
    /// # Errors
    /// A field that the wire format does not have, or that the message ends in.
    pub fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, Malformed> {
        if self.is_empty() {
            return Ok(None);
        }
        let start = self.at;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).unwrap_or(0);
        if number == 0 {
            return Err(Malformed { at: start, what: "a field number out of range" });
        }
        let payload = match key & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => Payload::Message(self.message()?),
            5 => Payload::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(Malformed { at: start, what: "a field of a wire type that does not exist" }),
        };
        Ok(Some((number, payload)))
    }

    /// The rest as text.
    ///
    /// # Errors
    /// Bytes that are not UTF-8.
    pub fn text(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.rest()).or_else(|_| self.fail("text that is not UTF-8"))
    }
}

impl<'a> Payload<'a> {
    /// The number.
    ///
    /// # Errors
    /// A payload of another type.
    pub fn varint(&self, reader: &Reader<'a>) -> Result<u64, Malformed> {
        match self {
            Self::Varint(n) => Ok(*n),
            _ => reader.fail("a field of another type than its schema's"),
        }
    }

    /// The message.
    ///
    /// # Errors
    /// A payload of another type.
    pub fn message(self, reader: &Reader<'a>) -> Result<Reader<'a>, Malformed> {
        match self {
            Self::Message(inner) => Ok(inner),
            _ => reader.fail("a field of another type than its schema's"),
        }
    }
}

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// In a variable number of bytes.
    Varint = 0,
    /// In eight bytes.
    Fixed64 = 1,
    /// In four bytes.
    Fixed32 = 5,
}

/// Appends fields to a message; fields of proto3's default value are left to the caller.
#[derive(Debug, Default)]
pub struct Writer {
    /// The message so far.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// A number without a field.
    pub fn raw_varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.raw_varint(u64::from(field) << 3 | wire);
    }

    /// A number of variable length.
    pub fn varint(&mut self, field: u32, n: u64) {
        self.key(field, 0);
        self.raw_varint(n);
    }

    fn bits(&mut self, wire: Wire, bits: u64) {
        match wire {
            Wire::Varint => self.raw_varint(bits),
            Wire::Fixed64 => self.bytes.extend_from_slice(&bits.to_le_bytes()),
            Wire::Fixed32 => self.bytes.extend_from_slice(&(bits as u32).to_le_bytes()),
        }
    }

    /// A number, the low half of `bits` in 32 bits.
    pub fn scalar(&mut self, field: u32, wire: Wire, bits: u64) {
        self.key(field, wire as u64);
        self.bits(wire, bits);
    }

    /// A message or a text.
    pub fn message(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.delimited(bytes);
    }

    /// A length and that many bytes.
    pub fn delimited(&mut self, bytes: &[u8]) {
        self.raw_varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// A message that is written in its place.
    pub fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, 2);
        self.measured(write);
    }

    /// What is written, behind its length.
    pub fn measured(&mut self, write: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        // Most messages are short: their length is of one byte.
        self.bytes.push(0);
        write(self);
        let length = self.bytes.len() - at - 1;
        if length < 0x80 {
            self.bytes[at] = length as u8;
        } else {
            let mut long = Self::default();
            long.raw_varint(length as u64);
            self.bytes.splice(at..=at, long.bytes);
        }
    }

    /// Numbers without keys between them; nothing for none.
    pub fn packed(&mut self, field: u32, wire: Wire, numbers: &[u64]) {
        if !numbers.is_empty() {
            self.nested(field, |inner| numbers.iter().for_each(|&n| inner.bits(wire, n)));
        }
    }
}
