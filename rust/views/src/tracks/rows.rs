//! A job's operations as slices: rows of ranks, with or without a program behind them.

use super::{Flow, Slice, Tracks, Tree, bounded};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use std::collections::BTreeMap;

/// A stretch of time on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The row's name, in its groups' names.
    pub row: Vec<String>,
    /// Its name.
    pub name: String,
    /// The place in the source that asks for it; may be empty.
    pub origin: String,
    /// First picosecond.
    pub start: Ps,
    /// End.
    pub end: Ps,
    /// Its part in a message.
    pub flow: Flow,
}

impl Tracks {
    /// The tracks of a job called `name`. Stretches of one row that overlap stand in rows of the same name, numbered.
    ///
    /// # Errors
    /// `AHBM-B122` for a job too long to show.
    pub fn of_job(name: &str, stretches: Vec<Stretch>) -> Result<Self, Diagnostic> {
        bounded(stretches.len())?;
        let mut out = Self {
            facts: vec![("ahbm", env!("CARGO_PKG_VERSION").to_owned()), ("program", name.to_owned())],
            ..Self::default()
        };
        let mut tree = Tree::default();
        let run = Slice {
            track: tree.track(None, "run"),
            name: out.names.insert_full(name.to_owned()).0 as u32,
            origin: None,
            depth: 0,
            flow: Flow::None,
            carries: None,
            start: 0,
            end: stretches.iter().map(|s| s.end).max().unwrap_or(0),
        };
        out.slices.push(run);
        out.place(&mut tree, stretches, 0);
        out.tracks = tree.into_tracks();
        Ok(out)
    }

    /// Adds the stretches in rows ordered by their names, so that a rank's stand together. The number of a flow counts
    /// from `first`.
    pub(super) fn place(&mut self, tree: &mut Tree, mut stretches: Vec<Stretch>, first: u32) {
        stretches.sort_by_key(|s| (s.start, s.end));
        let mut rows: BTreeMap<Vec<_>, Vec<Stretch>> = BTreeMap::new();
        for stretch in stretches {
            rows.entry(stretch.row.iter().map(|name| natural(name)).collect()).or_default().push(stretch);
        }
        let known = self.origins.len();
        let mut origins = indexmap::IndexSet::new();
        for stretches in rows.into_values() {
            let row = stretches[0].row.clone();
            let Some((last, groups)) = row.split_last() else { continue };
            let parent = groups.iter().fold(None, |parent, group| Some(tree.track(parent, group.as_str())));
            // Per row of this name, its last end.
            let mut ends: Vec<Ps> = Vec::new();
            let mut lanes: Vec<Vec<Slice>> = Vec::new();
            for stretch in stretches {
                let lane = ends.iter().position(|&end| end <= stretch.start).unwrap_or(ends.len());
                if lane == ends.len() {
                    ends.push(0);
                    lanes.push(Vec::new());
                }
                ends[lane] = stretch.end;
                let number = if lane == 0 { last.clone() } else { format!("{last} ({})", lane + 1) };
                lanes[lane].push(Slice {
                    track: tree.track(parent, number),
                    name: self.names.insert_full(stretch.name).0 as u32,
                    origin: Some((known + origins.insert_full(stretch.origin).0) as u32),
                    depth: 0,
                    flow: stretch.flow.moved(first),
                    carries: None,
                    start: stretch.start,
                    end: stretch.end,
                });
            }
            self.slices.extend(lanes.into_iter().flatten());
        }
        self.origins.extend(origins);
    }
}

/// The key that orders names with their numbers as numbers: rank 2 before rank 10.
fn natural(name: &str) -> Vec<(u64, String)> {
    let runs = name.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()).map(String::from_utf8_lossy);
    runs.map(|run| run.parse().map_or_else(|_| (u64::MAX, run.to_string()), |number| (number, String::new()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(row: &[&str], start: Ps, end: Ps) -> Stretch {
        let row = row.iter().map(|&name| name.to_owned()).collect();
        Stretch { row, name: "all_reduce".into(), origin: "job.py:1".into(), start, end, flow: Flow::None }
    }

    #[test]
    fn what_overlaps_stands_in_rows_of_its_own() {
        let rank = ["rank 0", "WORLD"];
        let tracks = Tracks::of_job(
            "job",
            vec![stretch(&rank, 5, 9), stretch(&rank, 0, 6), stretch(&rank, 6, 8), stretch(&["rank 1", "WORLD"], 0, 9)],
        )
        .unwrap();
        let names: Vec<_> = tracks.tracks.iter().map(|t| (t.name.as_str(), t.parent)).collect();
        let expected = [
            ("run", None),
            ("rank 0", None),
            ("WORLD", Some(1)),
            ("WORLD (2)", Some(1)),
            ("rank 1", None),
            ("WORLD", Some(4)),
        ];
        assert_eq!(names, expected);
        let slices: Vec<_> = tracks.slices.iter().map(|s| (s.track, s.start, s.end)).collect();
        assert_eq!(slices, [(0, 0, 9), (2, 0, 6), (2, 6, 8), (3, 5, 9), (5, 0, 9)]);
    }
}
