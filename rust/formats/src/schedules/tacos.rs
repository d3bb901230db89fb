//! TACOS 1.1: `SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks`, with lines about the whole before.
//!
//! Source: the writer of astra-sim/tacos at 158b28b6, `src/writer/csv_writer.cpp`, which also writes `None` for a link
//! without chunks. Chunk `j * n + r` is the j-th of rank r; the collective is an all-gather.

use super::malformed;
use super::moves::{Item, Move, Moves};
use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};
use ahbm_program::Locus;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A link with what it carries, in order.
struct Link {
    from: u32,
    to: u32,
    line: u32,
    /// Arbitrary units of one chunk.
    takes: u64,
    chunks: Vec<u32>,
}

pub(super) fn read(bytes: &[u8], file: &str, budget: &Budget) -> Result<Moves, Diagnostic> {
    budget.check(Limit::FileBytes, bytes.len() as u64)?;
    let text = std::str::from_utf8(bytes).map_err(|_| malformed(file, "", "no text"))?;
    let (mut stated, mut size) = ([None; 3], 1u64);
    let mut links: Vec<Link> = Vec::new();
    let mut total = 0u64;
    for (line, row) in (1u32..).zip(text.lines()) {
        let bad = |what: String| malformed(file, format_args!(":{line}"), what);
        let mut cells = row.split(',').map(str::trim);
        let first = cells.next().unwrap_or("");
        let known = ["NPUs Count", "Chunks Count", "Links Count", "Chunk Size", "SrcID"];
        match known.iter().position(|name| *name == first) {
            Some(index @ 0..=2) => {
                stated[index] =
                    Some(number(cells.next().unwrap_or("")).ok_or_else(|| bad(format!("{first} is no number")))?)
            }
            Some(3) => {
                size = cells
                    .next()
                    .and_then(|cell| cell.parse().ok())
                    .filter(|&size| size > 0)
                    .ok_or_else(|| bad("a chunk size of nothing".into()))?
            }
            Some(_) => {}
            None if first.is_empty() || first.starts_with('#') => {}
            None => {
                let from = number(first).ok_or_else(|| bad(format!("{first:?} is no NPU")))?;
                let mut next =
                    || cells.next().ok_or_else(|| bad("a link has a destination, a latency and a bandwidth".into()));
                let (to, latency, bandwidth) = (next()?, next()?, next()?);
                let to = number(to).ok_or_else(|| bad(format!("{to:?} is no NPU")))?;
                let cost = |text: &str| text.parse::<f64>().ok().filter(|cost| cost.is_finite() && *cost >= 0.0);
                let (Some(latency), Some(bandwidth)) = (cost(latency), cost(bandwidth)) else {
                    return Err(bad("latency and bandwidth are numbers".into()));
                };
                let mut chunks = Vec::new();
                for cell in cells.filter(|cell| !cell.is_empty() && *cell != "None") {
                    chunks.push(number(cell).ok_or_else(|| bad(format!("{cell:?} is no chunk")))?);
                }
                total += chunks.len() as u64;
                budget.check(Limit::Steps, total)?;
                // Picoseconds, of a link that is busy for latency and transfer.
                let takes = (latency * 1e3 + if bandwidth > 0.0 { size as f64 * 1e3 / bandwidth } else { 0.0 }) as u64;
                links.push(Link { from, to, line, takes: takes.max(1), chunks });
            }
        }
    }
    let lines = links.len() as u64;
    let count = stated[2].map_or(lines, u64::from);
    if lines > count {
        return Err(malformed(file, "", format!("{lines} links in a schedule of {count}")));
    }
    // The writer counts both links of a torus with two NPUs in a dimension, and writes them as one.
    let cut = (lines < count).then(|| {
        Diagnostic::new("AHBM-F175", format!("{lines} links in a schedule that states {count}"))
            .site("schedule", file)
            .hint("if it is of no torus with two NPUs in a dimension, the rest of the file is missing")
    });
    let most = links.iter().map(|link| link.from.max(link.to) + 1).max().unwrap_or(0);
    let ranks = stated[0].unwrap_or(most);
    if most > ranks || ranks < 2 {
        return Err(malformed(file, "", format!("links of {most} NPUs in a schedule of {ranks}")));
    }
    budget.check(Limit::Ranks, ranks.into())?;
    let highest = links.iter().flat_map(|link| &link.chunks).max().map_or(0, |&chunk| chunk + 1);
    let chunks = stated[1].unwrap_or_else(|| highest.checked_next_multiple_of(ranks).unwrap_or(0));
    if chunks == 0 || !chunks.is_multiple_of(ranks) || highest > chunks {
        let what = format!("{chunks} chunks (the highest is {}) of {ranks} NPUs", highest.saturating_sub(1));
        return Err(malformed(file, "", what).hint("chunk j * n + r is the j-th of NPU r"));
    }
    budget.check(Limit::Steps, u64::from(chunks) * u64::from(ranks))?;
    let everybody: Vec<u32> = (0..ranks).collect();
    let items = (0..chunks).map(|chunk| Item { owners: vec![chunk % ranks], takers: everybody.clone() }).collect();
    let list = ordered(&links, ranks, chunks, file)?;
    let places = links.iter().map(|link| Locus::Line(link.line)).collect();
    Ok(Moves { name: "tacos".into(), ranks, items, list, places, named: None, warnings: cut.into_iter().collect() })
}

/// The moves in the order of their arrivals: every link works through its chunks and waits for what its NPU lacks.
fn ordered(links: &[Link], ranks: u32, chunks: u32, file: &str) -> Result<Vec<Move>, Diagnostic> {
    let slot = |rank: u32, chunk: u32| rank as usize * chunks as usize + chunk as usize;
    let mut has: Vec<bool> = vec![false; ranks as usize * chunks as usize];
    (0..chunks).for_each(|chunk| has[slot(chunk % ranks, chunk)] = true);
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); ranks as usize];
    links.iter().enumerate().for_each(|(index, link)| out[link.from as usize].push(index));
    let mut next = vec![0usize; links.len()];
    let mut busy = vec![false; links.len()];
    let mut free = vec![0u64; links.len()];
    let mut arrivals: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut list = Vec::new();
    let mut start = |link: usize,
                     now: u64,
                     has: &[bool],
                     next: &[usize],
                     arrivals: &mut BinaryHeap<Reverse<(u64, usize)>>,
                     busy: &mut [bool]| {
        let Some(&chunk) = links[link].chunks.get(next[link]) else { return };
        if !busy[link] && has[slot(links[link].from, chunk)] {
            busy[link] = true;
            free[link] = now.max(free[link]).saturating_add(links[link].takes);
            arrivals.push(Reverse((free[link], link)));
        }
    };
    (0..links.len()).for_each(|link| start(link, 0, &has, &next, &mut arrivals, &mut busy));
    while let Some(Reverse((now, link))) = arrivals.pop() {
        let Link { from, to, ref chunks, .. } = links[link];
        let item = chunks[next[link]];
        list.push(Move { item, from, to, adds: false, copied: false, at: now, place: link as u32 });
        next[link] += 1;
        busy[link] = false;
        has[slot(to, item)] = true;
        start(link, now, &has, &next, &mut arrivals, &mut busy);
        out[to as usize].iter().for_each(|&link| start(link, now, &has, &next, &mut arrivals, &mut busy));
    }
    match links.iter().zip(&next).find(|(link, next)| **next < link.chunks.len()) {
        None => Ok(list),
        Some((link, &next)) => {
            let what = format!("NPU {} sends chunk {} to {} and never has it", link.from, link.chunks[next], link.to);
            Err(Diagnostic::new("AHBM-F181", what)
                .site("link", format!("{file}:{}", link.line))
                .hint("the chunks of a link are sent in the order of the file"))
        }
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number: &u32| number < u32::MAX)
}
