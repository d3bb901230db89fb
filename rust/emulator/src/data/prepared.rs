//! A program made ready for its replays: their parts on several threads, and the accesses of one.

use super::image::Image;
use super::liveness::Liveness;
use super::memory::Memory;
use super::observer::{Access, Observer, observe};
use super::parts::Parts;
use super::pool;
use super::replay::{Replay, recorded};
use crate::{NEVER, Timeline};
use ahbm_engine::interrupt::{spend, watched};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, BufferId, Comm, OpKind, Program};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Time between two looks at whether the work of other threads is still wanted.
const PERIOD: Duration = Duration::from_millis(40);

/// Facts worked out once for all replays of one program.
#[derive(Debug)]
pub struct Prepared {
    liveness: Vec<Liveness>,
    pub(super) parts: Parts,
}

impl Prepared {
    /// # Errors
    /// The structural lints of [`ahbm_program::structure`].
    pub fn of(program: &Program) -> Result<Self, Diagnostic> {
        match ahbm_program::structure(program).into_iter().next() {
            Some(first) => Err(first),
            None => Ok(Self {
                liveness: program.bodies.iter().map(|b| Liveness::of(b)).collect(),
                parts: Parts::of(program),
            }),
        }
    }

    /// Whether the data depend on the times of a timeline, and not on the program alone: agents share memory, or a body
    /// receives from any direction.
    pub fn depends_on_times(&self, program: &Program) -> bool {
        let any = |op: &ahbm_program::Op| matches!(op.kind, OpKind::Comm(Comm::RecvAny { .. }));
        self.parts.ordered || program.bodies.iter().any(|body| body.ops.iter().any(any))
    }

    /// Replays a timeline's effects on `memory`, which holds the inputs before and the outputs after. `program` is the
    /// one this was made of.
    ///
    /// Spans ([`Timeline::spans`]) are needed only when agents share memory; choices whenever a body
    /// receives from any direction.
    ///
    /// # Errors
    /// The findings in the table of [this module](super). After an error `memory` holds whatever was written until
    /// then.
    pub fn replay(&self, program: &Program, timeline: &Timeline, memory: &mut Memory) -> Result<(), Diagnostic> {
        self.on_threads(program, timeline, memory, self.parts.threads())
    }

    /// Replays parts one after the other.
    fn in_turn(
        &self,
        parts: &[Vec<AgentId>],
        program: &Program,
        timeline: &Timeline,
        memory: &mut Memory,
        observer: &mut Observer,
    ) -> Result<(), Diagnostic> {
        let sizes = (0..memory.len()).map(|b| memory.size(BufferId(b as u32)));
        if !sizes.eq(program.buffers.iter().map(|b| b.bytes)) {
            return Err(Diagnostic::new("AHBM-D191", "the memory was laid out for another program")
                .hint("make it with Memory::new(&program)"));
        }
        let mut pool = std::mem::take(&mut memory.pool);
        let done = pool::with(&mut pool, || self.follow(parts, program, timeline, memory, observer));
        memory.pool = pool;
        done
    }

    /// Replays parts one after the other on any image of the program's buffers.
    pub(super) fn follow<'p>(
        &'p self,
        parts: &[Vec<AgentId>],
        program: &'p Program,
        timeline: &'p Timeline,
        image: &mut impl Image<'p>,
        observer: &mut Observer,
    ) -> Result<(), Diagnostic> {
        let mut replay = Replay::new(program, timeline, image, (&self.liveness, self.parts.ordered), observer)?;
        parts.iter().try_for_each(|part| replay.run(part))
    }

    /// Replays all parts on `threads` threads. The error is that of the first part that has one, whatever their number.
    fn on_threads(
        &self,
        program: &Program,
        timeline: &Timeline,
        memory: &mut Memory,
        threads: usize,
    ) -> Result<(), Diagnostic> {
        let parts = &self.parts.agents;
        if threads <= 1 {
            return self.in_turn(parts, program, timeline, memory, &mut None);
        }
        let each = parts.len().div_ceil(threads).max(1);
        let piece_of = |buffer: usize| self.parts.buffers[buffer] as usize / each;
        let pieces = memory.divide(parts.len().div_ceil(each), piece_of);
        let mut divided = Divided { whole: memory, pieces };
        let mut work = parts.chunks(each).zip(&mut divided.pieces);
        let unwanted = Unwanted(Arc::default());
        thread::scope(|scope| {
            let first = work.next();
            let (sender, results) = mpsc::channel();
            for (number, (parts, memory)) in work.enumerate() {
                let (unwanted, sender) = (Arc::clone(&unwanted.0), sender.clone());
                scope.spawn(move || {
                    let work = || self.in_turn(parts, program, timeline, memory, &mut None);
                    let done = watched(move || unwanted.load(Ordering::Relaxed), work);
                    // Whoever waits for it may be unwinding.
                    sender.send((number, done)).unwrap_or_default();
                });
            }
            drop(sender);
            // Dropped before the scope waits for its threads.
            let _unwanted = unwanted;
            let mut done =
                first.map_or(Ok(()), |(parts, memory)| self.in_turn(parts, program, timeline, memory, &mut None));
            let mut others: Vec<(usize, Result<(), Diagnostic>)> = Vec::new();
            loop {
                match results.recv_timeout(PERIOD) {
                    Ok(result) => others.push(result),
                    Err(RecvTimeoutError::Timeout) => spend(u64::MAX),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            others.sort_by_key(|(number, _)| *number);
            for (_, other) in others {
                done = done.and(other);
            }
            done
        })
    }

    /// The accesses to memory in the order in which they happen, and whether what is posted is written when it arrives,
    /// by an access of its own, and not at once. Replays on `memory` where agents share memory; else the order follows
    /// from the times, and `memory` stays as it is.
    ///
    /// # Errors
    /// As [`Self::replay`]; `AHBM-D191` for a timeline without spans.
    pub fn accesses(
        &self,
        program: &Program,
        timeline: &Timeline,
        memory: &mut Memory,
    ) -> Result<(Vec<Access>, bool), Diagnostic> {
        let mut observer = Some(Vec::new());
        if self.parts.ordered {
            self.in_turn(&self.parts.agents, program, timeline, memory, &mut observer)?;
            return Ok((observer.unwrap_or_default(), true));
        }
        recorded(program, timeline)?;
        for (agent, spans) in timeline.spans.iter().enumerate() {
            spend(8 * spans.len() as u64);
            for (op, span) in spans.iter().enumerate().take_while(|(_, span)| span.end != NEVER) {
                observe(&mut observer, program, span.end, (AgentId(agent as u32), op), false);
            }
        }
        let mut accesses = observer.unwrap_or_default();
        accesses.sort_by_key(|access| access.at);
        Ok((accesses, false))
    }
}

/// [`Prepared::replay`], for once.
///
/// # Errors
/// As [`Prepared::of`] and [`Prepared::replay`].
pub fn replay(program: &Program, timeline: &Timeline, memory: &mut Memory) -> Result<(), Diagnostic> {
    Prepared::of(program)?.replay(program, timeline, memory)
}

/// Memory that is divided among threads, and put together again at the end, however that comes.
struct Divided<'m> {
    whole: &'m mut Memory,
    pieces: Vec<Memory>,
}

impl Drop for Divided<'_> {
    fn drop(&mut self) {
        self.whole.unite(std::mem::take(&mut self.pieces));
    }
}

/// Tells the other threads that this one unwinds.
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
