//! Directions: the names a kernel sends to and receives from.

use std::fmt;

/// A name in a PE's neighbour (SFR) table.
///
/// Text forms: `N S E W` (cube mesh), `global_N global_S global_E global_W global_U global_D`
/// (SIP grid), `global_dim<k>` (hypercube), and peer addresses `sip<s>`, `cube<c>`, `pe<p>` or a
/// dotted combination in that order (`sip2.cube5.pe0`), where an omitted part means "same as mine".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Neighbour in the cube mesh of the same SIP.
    Cube(Heading),
    /// Neighbour in the SIP grid.
    Global(Heading),
    /// Neighbour across one hypercube dimension.
    Dim(u8),
    /// A thread block of an imported plan: the peer rank and the plan's channel number.
    Tag {
        /// Peer rank.
        rank: u32,
        /// Channel number of the plan.
        channel: u32,
    },
    /// A PE by address; `None` means "same as mine".
    Peer {
        /// SIP index.
        sip: Option<u32>,
        /// Cube index inside the SIP.
        cube: Option<u32>,
        /// PE index inside the cube.
        pe: Option<u32>,
    },
}

/// A compass heading; `U`/`D` are the third dimension of SIP grids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Heading {
    N,
    S,
    E,
    W,
    U,
    D,
}

impl Heading {
    /// The headings of a cube's ports.
    pub(crate) const MESH: [Self; 4] = [Self::N, Self::E, Self::S, Self::W];

    /// The heading that leads back.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::N => Self::S,
            Self::S => Self::N,
            Self::E => Self::W,
            Self::W => Self::E,
            Self::U => Self::D,
            Self::D => Self::U,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::N => 'N',
            Self::S => 'S',
            Self::E => 'E',
            Self::W => 'W',
            Self::U => 'U',
            Self::D => 'D',
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "N" => Self::N,
            "S" => Self::S,
            "E" => Self::E,
            "W" => Self::W,
            "U" => Self::U,
            "D" => Self::D,
            _ => return None,
        })
    }
}

impl Direction {
    /// Parses the text form; `None` when it is not a direction name.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("global_") {
            if let Some(dim) = rest.strip_prefix("dim") {
                return number(dim).and_then(|k| u8::try_from(k).ok()).map(Self::Dim);
            }
            return Heading::parse(rest).map(Self::Global);
        }
        if let Some(heading) = Heading::parse(text) {
            return (!matches!(heading, Heading::U | Heading::D)).then_some(Self::Cube(heading));
        }
        let (mut sip, mut cube, mut pe) = (None, None, None);
        for part in text.split('.') {
            let digits = part.trim_start_matches(|c: char| c.is_ascii_lowercase());
            let number = number(digits)?;
            let slot = match &part[..part.len() - digits.len()] {
                "sip" if sip.is_none() && cube.is_none() && pe.is_none() => &mut sip,
                "cube" if cube.is_none() && pe.is_none() => &mut cube,
                "pe" if pe.is_none() => &mut pe,
                _ => return None,
            };
            *slot = Some(number);
        }
        Some(Self::Peer { sip, cube, pe })
    }
}

/// Decimal digits only; the standard parser would take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cube(h) => write!(f, "{}", h.letter()),
            Self::Global(h) => write!(f, "global_{}", h.letter()),
            Self::Dim(k) => write!(f, "global_dim{k}"),
            Self::Tag { rank, channel } => write!(f, "rank{rank}.ch{channel}"),
            Self::Peer { sip, cube, pe } => {
                let mut dot = "";
                for (name, part) in [("sip", sip), ("cube", cube), ("pe", pe)] {
                    if let Some(n) = part {
                        write!(f, "{dot}{name}{n}")?;
                        dot = ".";
                    }
                }
                if dot.is_empty() { f.write_str("self") } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip() {
        for text in ["N", "W", "global_E", "global_U", "global_dim3", "sip2", "cube5.pe0", "sip2.cube5.pe0", "pe7"] {
            assert_eq!(Direction::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_text_is_not_a_direction() {
        for text in [
            "",
            "U",
            "global_",
            "global_Q",
            "dim3",
            "pe1.sip2",
            "sip",
            "sip-1",
            "sip1.sip2",
            "east",
            "sip99999999999",
            "pe+1",
            "global_dim+1",
            "global_dim999",
        ] {
            assert_eq!(Direction::parse(text), None, "{text}");
        }
    }
}
