//! An execution plan to a program: one agent per thread block.

use super::body::Writer;
use super::context::Context;
use super::layout::Layout;
use super::{Action, ExecutionPlan};
use crate::{Budget, Limit, LowerOptions, Lowered, Reduction, Site};
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use ahbm_program::{BinaryFn, ChannelSettings, ProgramBuilder};

/// Which launch of the plan runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// It uses the second half of a double scratch: the second, the fourth, …
    even: bool,
    /// Semaphores get their values, which they keep from launch to launch.
    first: bool,
}

impl Launch {
    /// The first, on the first half of a double scratch.
    pub const ODD: Self = Self { even: false, first: true };
    /// On the second half, as if it were the first.
    pub const EVEN: Self = Self { even: true, first: true };
}

impl ExecutionPlan {
    /// The launches that follow `launch`, in turn: none when all launches are the same.
    pub fn after(&self, launch: Launch) -> Vec<Launch> {
        let again = Launch { first: false, ..launch };
        let started = self.ranks.iter().any(|rank| rank.semaphores.iter().any(|&value| value > 0));
        match (self.double_scratch, started) {
            (true, _) => vec![Launch { even: !launch.even, ..again }, again],
            (false, true) => vec![again],
            (false, false) => Vec::new(),
        }
    }

    /// The plan on a machine: the thread blocks of a rank on the PEs of its SIP in turn, its buffers in the HBM slice
    /// of the SIP's first PE. `options.bytes` are those of the larger of input and output. Where the machine has a
    /// switch that reduces, operations on switch channels take place there.
    ///
    /// # Errors
    /// `AHBM-U211` operations without an executor, `AHBM-U204` more ranks than the machine has SIPs, `AHBM-F147` a
    /// size that does not fit the plan, `AHBM-U212` options that a plan of this format decides itself, `AHBM-B209`
    /// over the budget of operations, and what [`ProgramBuilder::finish`] finds.
    pub fn lower(&self, machine: &Machine, options: &LowerOptions, launch: Launch) -> Result<Lowered, Vec<Diagnostic>> {
        let here = |error: Diagnostic| vec![error.site("plan", &*self.file)];
        let site = Site::of(machine, options, &self.name, self.ranks.len()).map_err(here)?;
        self.decides(options).map_err(here)?;
        let layout = Layout::of(self, options, launch.even).map_err(here)?;
        self.lower_at(&site, layout, launch.first, machine.switch_reduces(), &options.budget)
    }

    /// The plan without a machine, in 8-byte cells: what a check of its meaning runs. A chunk is one cell, or
    /// [`Lowered::chunk_bytes`]` / 8` cells where thread-block groups or loops of `iterations` iterations split it.
    ///
    /// # Errors
    /// As [`ExecutionPlan::lower`], but for the machine and the size.
    pub fn lower_for_check(
        &self,
        iterations: u32,
        launch: Launch,
        budget: &Budget,
    ) -> Result<Lowered, Vec<Diagnostic>> {
        let layout =
            Layout::of_cells(self, iterations, launch.even).map_err(|error| vec![error.site("plan", &*self.file)])?;
        self.lower_at(&Site::abstract_of(self.ranks.len() as u32), layout, launch.first, false, budget)
    }

    /// A launch of the plan, and those that follow it, each as `lower` makes it.
    ///
    /// # Errors
    /// Those of `lower`.
    pub fn in_turn(
        &self,
        launch: Launch,
        lower: impl Fn(Launch) -> Result<Lowered, Vec<Diagnostic>>,
    ) -> Result<Lowered, Vec<Diagnostic>> {
        let first = lower(launch)?;
        let later = self.after(launch).into_iter().map(|launch| Ok(lower(launch)?.program));
        Ok(Lowered { later: later.collect::<Result<_, Vec<Diagnostic>>>()?, ..first })
    }

    /// Bytes of every rank's plain scratch in [`ExecutionPlan::lower_for_check`] of so many iterations.
    ///
    /// # Errors
    /// As there, for memory that is too large.
    pub fn scratch_for_check(&self, iterations: u32) -> Result<Vec<u64>, Diagnostic> {
        let layout = Layout::of_cells(self, iterations, false)?;
        Ok((0..self.ranks.len() as u32).map(|rank| layout.scratch(rank)).collect())
    }

    fn decides(&self, options: &LowerOptions) -> Result<(), Diagnostic> {
        let fixed = |what: String| Err(Diagnostic::new("AHBM-U212", what));
        if options.instances != 1 {
            return fixed("an execution plan is written for its instances; they cannot be chosen".to_owned());
        }
        if options.protocol.is_some_and(|protocol| protocol != self.protocol) {
            return fixed(format!("an execution plan is written for its protocol, {} here", self.protocol.name()));
        }
        if options.reduction == Reduction::Avg {
            return fixed("an execution plan has no step that divides".to_owned());
        }
        let mut written: Option<BinaryFn> = None;
        self.walk(|_, op| {
            if let Action::Reduce { function, .. } = op.action {
                written = written.filter(|known| *known != options.reduction.function()).or(Some(function));
            }
        });
        match written {
            Some(function) if function != options.reduction.function() => {
                fixed(format!("the plan reduces with {function:?}, the run asks for {:?}", options.reduction))
            }
            _ => Ok(()),
        }
    }

    fn lower_at(
        &self,
        site: &Site,
        layout: Layout,
        fresh: bool,
        switched: bool,
        budget: &Budget,
    ) -> Result<Lowered, Vec<Diagnostic>> {
        if !self.unsupported.is_empty() {
            return Err(self.unsupported.clone());
        }
        let mut builder = ProgramBuilder::new(&*self.name);
        let context = Context::new(self, layout, fresh, switched, site, &mut builder);
        let cost = context.cost().map_err(|error| vec![error.site("plan", &*self.file)])?;
        budget.check(Limit::Ops, cost).map_err(|error| vec![error.site("plan", &*self.file)])?;
        for (rank, work) in (0..).zip(&self.ranks) {
            for (index, ops) in (0..).zip(&work.blocks) {
                let mut writer = Writer::new(&context, rank);
                writer.block(index, ops, &mut builder.origins).map_err(|error| vec![error])?;
                let (body, table) = writer.finish();
                let (coord, place) = site.place(rank, index);
                let body = builder.body(body);
                builder.thread_block(rank, coord, place, body, &table);
            }
        }
        let Context { buffers, layout, .. } = context;
        let settings = ChannelSettings { slots: 1, slot_bytes: None, tier: 0, credit_bytes: 0 };
        Ok(Lowered { program: builder.finish(settings)?, ranks: buffers, chunk_bytes: layout.chunk, later: Vec::new() })
    }
}
