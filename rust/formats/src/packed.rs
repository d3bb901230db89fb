//! Files that are packed: gzip (RFC 1952) and Zstandard (RFC 8878), read as streams. Whoever reads one counts its bytes
//! against a budget as they come.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{BufRead, Error, ErrorKind, Read};

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// One or more members of gzip.
    Gzip,
    /// One or more frames of Zstandard, with windows of at most 100 MiB.
    Zstandard,
}

impl Packing {
    /// By the first bytes of a file; none where it is not packed.
    pub fn of(start: &[u8]) -> Option<Self> {
        match *start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstandard),
            _ => None,
        }
    }

    /// Its name, as errors have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstandard => "Zstandard",
        }
    }

    /// What is in it. Memory is that of a window, however much there is to read.
    pub fn reader<'a>(self, packed: impl BufRead + 'a) -> Box<dyn Read + 'a> {
        match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Self::Zstandard => Box::new(Frames { packed, decoder: FrameDecoder::new(), within: false }),
        }
    }
}

/// The first `most` bytes of what a file has in it, packed or not.
///
/// # Errors
/// What the packed stream is broken by, as far as it is read.
pub fn unpacked(file: &[u8], most: u64) -> Result<Vec<u8>, Error> {
    let mut found = Vec::new();
    match Packing::of(file) {
        Some(packing) => packing.reader(file).take(most).read_to_end(&mut found)?,
        None => file.take(most).read_to_end(&mut found)?,
    };
    Ok(found)
}

/// As [`unpacked`], of a file of which only the beginning is there: as much as it gives, broken or not. A frame of
/// Zstandard that is cut gives nothing of its last window.
pub fn beginning(file: &[u8], most: u64) -> Vec<u8> {
    let mut reader: Box<dyn Read> =
        Packing::of(file).map_or_else(|| Box::new(file) as _, |packing| packing.reader(file));
    let (mut found, mut part) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = reader.read(&mut part) {
        found.extend_from_slice(&part[..read]);
        if found.len() as u64 >= most {
            found.truncate(most as usize);
            break;
        }
    }
    found
}

/// Frames one after the other; those that are to be skipped are.
struct Frames<R> {
    packed: R,
    decoder: FrameDecoder,
    /// A frame has begun.
    within: bool,
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

impl<R: BufRead> Frames<R> {
    fn begin(&mut self) -> Result<(), Error> {
        match self.decoder.reset(&mut self.packed) {
            Ok(()) => self.within = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let length = u64::from(length);
                let skipped = std::io::copy(&mut self.packed.by_ref().take(length), &mut std::io::sink())?;
                if skipped < length {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(broken(error.to_string())),
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.within {
                if self.packed.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.begin()?;
                continue;
            }
            let missing = buffer.len().saturating_sub(self.decoder.can_collect());
            if missing > 0 && !self.decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBytes(missing);
                self.decoder.decode_blocks(&mut self.packed, blocks).map_err(|error| broken(error.to_string()))?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            if self.decoder.is_finished() {
                let stated = self.decoder.get_checksum_from_data();
                if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
                    return Err(broken("a checksum is not that of the data"));
                }
                self.within = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames as RFC 8878 has them: a raw block of 5 bytes, and one of a byte that is repeated.
    fn frame(repeated: u32) -> Vec<u8> {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
        let block = |last: u32, kind: u32, size: u32| (last | kind << 1 | size << 3).to_le_bytes()[..3].to_vec();
        frame.extend(block(0, 0, 5));
        frame.extend(b"hello");
        frame.extend(block(1, 1, repeated));
        frame.push(b'!');
        frame
    }

    #[test]
    fn frames_follow_each_other() {
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let file = [skipped, frame(2), frame(1)].concat();
        assert_eq!(Packing::of(&file), Some(Packing::Zstandard));
        assert_eq!(unpacked(&file, 100).unwrap(), b"hello!!hello!");
        assert_eq!(unpacked(&file, 6).unwrap(), b"hello!");
        assert_eq!(unpacked(b"plain", 3).unwrap(), b"pla");
    }

    #[test]
    fn broken_frames_are_errors() {
        let whole = frame(70_000);
        assert_eq!(unpacked(&whole, u64::MAX).unwrap().len(), 70_005);
        for end in 4..whole.len() {
            assert!(unpacked(&whole[..end], u64::MAX).is_err(), "{end}");
            assert!(b"hello".starts_with(&beginning(&whole[..end], 5)), "{end}");
        }
        let follows = [&whole[..], b"more"].concat();
        assert!(unpacked(&follows, u64::MAX).is_err());
        assert!(unpacked(&[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 1], 100).is_err());
    }
}
