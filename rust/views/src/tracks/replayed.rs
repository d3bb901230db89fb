//! A replayed job as tracks: what every rank computes and calls, above the machine that runs it.
//!
//! A rank has one row for each group that it calls in, one for its messages, and one each for computing on the
//! accelerator, on the host and for remote memory. The parts of a call are joined by a flow in the order in which the ranks arrived; so
//! are the two ends of a message.

use super::{Flow, Stretch, Tracks};
use ahbm_emulator::Timeline;
use ahbm_emulator::training::Times;
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use ahbm_program::Program;
use ahbm_workload::{Linked, Work};

impl Tracks {
    /// The tracks of a replayed job. `ran` is its program with a timeline that has detail; without it, the ranks alone.
    ///
    /// # Errors
    /// As [`Tracks::of`].
    pub fn of_replay(
        job: &Linked,
        times: &Times,
        machine: &Machine,
        ran: Option<(&Program, &Timeline)>,
    ) -> Result<Self, Diagnostic> {
        let rows = rows(job, times);
        match ran {
            Some((program, timeline)) => Self::with_rows(program, machine, timeline, rows),
            None => Self::of_job(&job.workload.name, rows),
        }
    }
}

fn rows(job: &Linked, times: &Times) -> Vec<Stretch> {
    let workload = &job.workload;
    let mut rows = Vec::new();
    for (place, span) in (0..job.nodes() as u32).zip(&times.nodes) {
        let (rank, at) = job.node(place);
        let node = workload.graph(rank).node(at);
        let share = job.share(place);
        let row = match (&node.work, share) {
            (_, Some(share)) => match job.calls.get(share.launch as usize) {
                Some(call) => match &*workload.groups[call.group as usize].name {
                    "" => "calls".to_owned(),
                    name => format!("calls in {name}"),
                },
                None => "messages".to_owned(),
            },
            (Work::Compute(_), None) if node.cpu => "host".to_owned(),
            (Work::Compute(_), None) => "computing".to_owned(),
            (Work::Memory { .. }, None) => "memory".to_owned(),
            _ => continue,
        };
        if span.end == span.start && share.is_none() {
            continue;
        }
        rows.push(Stretch {
            row: vec![format!("rank {rank}"), row],
            name: workload.graph(rank).name(at).to_owned(),
            origin: workload.origin(rank, at),
            start: span.start,
            end: span.end,
            flow: share.map_or(Flow::None, |share| Flow::With(share.launch)),
        });
    }
    rows
}
