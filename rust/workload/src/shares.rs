//! How much the ranks of a collective have for each other, where that is not the same.

use crate::node::{CallSpec, Collective};

/// Elements that belong to each rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shares {
    /// In the order of the group: of an all_to_all a row per rank with what it sends to each, else one row with what
    /// belongs to each.
    pub rows: Box<[Box<[u64]>]>,
    /// Only sums are stated: what each rank sends is spread over the others in proportion to what they receive.
    pub spread: bool,
}

impl Shares {
    /// The elements of the longest.
    pub fn longest(&self) -> u64 {
        self.rows.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Those of a call of which `specs` are the parts, in the order of the group; none where they are equal, or not
    /// known.
    pub(crate) fn of(specs: &[&CallSpec]) -> Option<Self> {
        let stated = |rows| Self { rows, spread: false };
        let found = match specs.first()?.collective {
            Collective::AllToAll => match between(specs) {
                Some(rows) => stated(rows),
                None => Self { rows: spread(specs)?, spread: true },
            },
            Collective::AllGather => {
                stated([common(specs, |spec| spec.receives.as_deref(), |through| through[0])?].into())
            }
            Collective::ReduceScatter | Collective::ReduceScatterBlock => {
                let row = common(specs, |spec| spec.sends.as_deref(), |through| through[1])?;
                let all = row.iter().map(|&each| u128::from(each)).sum::<u128>();
                if specs.iter().any(|spec| spec.through.is_some_and(|[whole, _]| u128::from(whole) != all)) {
                    return None;
                }
                stated([row].into())
            }
            _ => return None,
        };
        let mut all = found.rows.iter().flatten();
        let first = all.next()?;
        all.any(|each| each != first).then_some(found)
    }
}

/// What each rank sends to each, as the senders state it, else as the receivers do.
fn between(specs: &[&CallSpec]) -> Option<Box<[Box<[u64]>]>> {
    let whole = |list: &Option<Box<[u64]>>| list.clone().filter(|list| list.len() == specs.len());
    let sent: Option<Box<[_]>> = specs.iter().map(|spec| whole(&spec.sends)).collect();
    sent.or_else(|| {
        let columns: Vec<Box<[u64]>> = specs.iter().map(|spec| whole(&spec.receives)).collect::<Option<_>>()?;
        Some((0..specs.len()).map(|from| columns.iter().map(|column| column[from]).collect()).collect())
    })
}

fn spread(specs: &[&CallSpec]) -> Option<Box<[Box<[u64]>]>> {
    let sums: Vec<[u64; 2]> = specs.iter().map(|spec| spec.through).collect::<Option<_>>()?;
    let all: u128 = sums.iter().map(|&[_, out]| u128::from(out)).sum();
    let part = |[from, _]: [u64; 2], [_, to]: [u64; 2]| {
        u64::try_from((u128::from(from) * u128::from(to) + all / 2) / all.max(1)).unwrap_or(u64::MAX)
    };
    Some(sums.iter().map(|&from| sums.iter().map(|&to| part(from, to)).collect()).collect())
}

/// What belongs to each rank, as all of them state it, else as each states it of its own.
fn common<'s>(
    specs: &[&'s CallSpec],
    list: impl Fn(&'s CallSpec) -> Option<&'s [u64]>,
    own: impl Fn([u64; 2]) -> u64,
) -> Option<Box<[u64]>> {
    let first = list(specs[0]).filter(|row| row.len() == specs.len());
    if let Some(row) = first.filter(|&row| specs.iter().all(|&spec| list(spec) == Some(row))) {
        return Some(row.into());
    }
    specs.iter().map(|spec| spec.through.map(&own)).collect()
}
