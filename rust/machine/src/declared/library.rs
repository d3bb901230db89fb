//! `library` and `calibration`: the algorithms of a machine's communication library, and how a machine was fitted to
//! measured tables.

use super::{Bytes, Count, Reader, Real, Signed, Value, Word, section};
use crate::{Band, Library};
use ahbm_wire::yaml::Tree;

section! {
    /// The algorithms that the communication library of the machine runs, by collective: what a call takes where neither
    /// the user nor a ccl.yaml names one. Of several, each call takes the quickest.
    LibraryKeys {
        /// Of all_reduce.
        all_reduce: Option<Vec<Word>> = None,
        /// Of all_gather.
        all_gather: Option<Vec<Word>> = None,
        /// Of reduce_scatter.
        reduce_scatter: Option<Vec<Word>> = None,
        /// Of all_to_all.
        all_to_all: Option<Vec<Word>> = None,
        /// Of broadcast.
        broadcast: Option<Vec<Word>> = None,
        /// Of reduce.
        reduce: Option<Vec<Word>> = None,
    }
}

section! {
    /// How the machine was fitted to measured tables; written by `ahbm calibrate`. It changes no time.
    Calibration {
        /// The accelerator that the tables name.
        accelerator: Option<Word> = None,
        /// The tables.
        sources: Vec<Source> = Vec::new(),
        /// The fitted parameters, by their dotted paths.
        parameters: Vec<Word> = Vec::new(),
        /// Covariance of the logarithms of the parameters, row by row.
        covariance: Vec<Vec<Signed>> = Vec::new(),
        /// The valid range, and the error in each part of it.
        bands: Vec<BandKeys> = Vec::new(),
        /// The sizes of the rows that each protocol was fitted to.
        ranges: Vec<RangeKeys> = Vec::new(),
    }
}

section! {
    /// A table that a machine was fitted to.
    Source {
        /// Its file's name.
        table: Option<Word> = None,
        /// SHA-256 of the file, the first 16 hex digits.
        digest: Option<Word> = None,
        /// The collective.
        collective: Option<Word> = None,
        /// Ranks that took part.
        ranks: Count<1, 1_048_576> = Count(1),
        /// Rows that were fitted.
        rows: Count<0, 1_048_576> = Count(0),
        /// Mean error at sizes that were held back, in percent.
        mean_percent: Real = Real(0.0),
    }
}

section! {
    /// A range of sizes for which the machine is valid, and how far it was off there at sizes that were held back.
    BandKeys {
        /// The collective.
        collective: Option<Word> = None,
        /// Ranks that took part.
        ranks: Count<1, 1_048_576> = Count(1),
        /// First size, in bytes of one rank's array as nccl-tests counts them.
        from_bytes: Bytes = Bytes(0),
        /// Last size.
        to_bytes: Bytes = Bytes(0),
        /// Mean error, in percent.
        mean_percent: Real = Real(0.0),
        /// Largest error, in percent.
        worst_percent: Real = Real(0.0),
        /// What other clusters of the machine's kind take more than it does, in percent: nine of ten take at least so
        /// much more, or less where it is below 0.
        low_percent: Option<Signed> = None,
        /// And nine of ten take at most so much more.
        high_percent: Option<Signed> = None,
    }
}

section! {
    /// The sizes of the rows that a protocol was fitted to: beyond them its numbers say nothing, and it is refused where
    /// somebody names it (`AHBM-C192`).
    RangeKeys {
        /// The protocol.
        protocol: Option<Word> = None,
        /// Ranks that took part.
        ranks: Count<1, 1_048_576> = Count(1),
        /// First size, in bytes of one rank's array.
        from_bytes: Bytes = Bytes(0),
        /// Last size.
        to_bytes: Bytes = Bytes(0),
    }
}

impl LibraryKeys {
    pub(crate) fn library(&self) -> Library {
        let named = [
            ("all_reduce", &self.all_reduce),
            ("all_gather", &self.all_gather),
            ("reduce_scatter", &self.reduce_scatter),
            ("all_to_all", &self.all_to_all),
            ("broadcast", &self.broadcast),
            ("reduce", &self.reduce),
        ];
        let names = |words: &Vec<Word>| words.iter().map(|word| word.0.clone()).collect();
        named.into_iter().filter_map(|(name, words)| Some((name, names(words.as_ref()?)))).collect()
    }
}

impl Calibration {
    pub(crate) fn bands(&self) -> Vec<Band> {
        let band = |keys: &BandKeys| {
            Some(Band {
                collective: keys.collective.as_ref()?.0.clone(),
                ranks: keys.ranks.0,
                from_bytes: keys.from_bytes.0,
                to_bytes: keys.to_bytes.0,
                mean_percent: keys.mean_percent.0,
                worst_percent: keys.worst_percent.0,
                others_percent: keys.low_percent.zip(keys.high_percent).map(|(low, high)| (low.0, high.0)),
            })
        };
        self.bands.iter().filter_map(band).collect()
    }

    /// Protocol, ranks, first and last bytes of one rank's array.
    pub(crate) fn ranges(&self) -> Vec<(String, u32, u64, u64)> {
        let range = |keys: &RangeKeys| {
            Some((keys.protocol.as_ref()?.0.clone(), keys.ranks.0, keys.from_bytes.0, keys.to_bytes.0))
        };
        self.ranges.iter().filter_map(range).collect()
    }

    /// Rules between its values.
    pub(crate) fn check(&self, node: &Tree, reader: &mut Reader<'_>) {
        let square = self.covariance.len() == self.parameters.len()
            && self.covariance.iter().all(|row| row.len() == self.parameters.len());
        if !self.covariance.is_empty() && !square {
            let message = format!("the covariance is no matrix of {} rows and columns", self.parameters.len());
            reader.report(node.at, "AHBM-T005", message, Some("ahbm calibrate writes this block".to_owned()));
        }
        for band in &self.bands {
            if band.collective.is_none() {
                reader.report(node.at, "AHBM-T005", "a band names no collective", None);
            }
            if band.from_bytes.0 > band.to_bytes.0 {
                reader.report(node.at, "AHBM-T005", "from_bytes of a band is more than its to_bytes", None);
            }
            if band.low_percent.is_some() != band.high_percent.is_some() {
                reader.report(node.at, "AHBM-T005", "a band has one of low_percent and high_percent alone", None);
            }
        }
        for range in &self.ranges {
            if range.protocol.is_none() {
                reader.report(node.at, "AHBM-T005", "a range names no protocol", None);
            }
            if range.from_bytes.0 > range.to_bytes.0 {
                reader.report(node.at, "AHBM-T005", "from_bytes of a range is more than its to_bytes", None);
            }
        }
    }
}

/// A calibration whose parts fit each other.
#[derive(Debug, Clone)]
pub(crate) struct Checked(pub(crate) Calibration);

impl Value for Checked {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let found = Calibration::read(node, reader)?;
        found.check(node, reader);
        Some(Self(found))
    }

    fn schema() -> serde_json::Value {
        Calibration::schema()
    }

    // The machine is the same, however its parameters were found.
    fn canonical(&self, _: &str, _: &mut String) {}
}
