//! The text form of programs, for people and for golden files.

use crate::{Body, Comm, Control, Math, Mem, Move, Op, OpKind, Program, Scalar};
use std::fmt::{self, Write};

/// Agents listed per body before the rest is counted.
const AGENTS: usize = 8;

impl Op {
    /// The operation in words, with the names of `body`, the body it stands in.
    pub fn describe(&self, body: &Body) -> String {
        let tile = |t: u32| body.tiles[t as usize].to_string();
        let dir = |d: u16| body.directions[d as usize].to_string();
        let post = |posted: bool| if posted { "post " } else { "" };
        let members = |group: u32| body.groups[group as usize].len();
        match self.kind {
            OpKind::Move(Move::Load { tile: t, .. }) => format!("load {}", tile(t)),
            OpKind::Move(Move::Store { tile: t, posted, .. }) => format!("{}store {}", post(posted), tile(t)),
            OpKind::Move(Move::ReducingLoad { f, group, tile: t, .. }) => {
                format!("load {f:?} of {} {}", members(group), tile(t)).to_lowercase()
            }
            OpKind::Move(Move::Multicast { group, tile: t, .. }) => {
                format!("post store to {} {}", members(group), tile(t))
            }
            OpKind::Move(Move::Copy { tile: t, posted, .. }) => format!("{}copy {}", post(posted), tile(t)),
            OpKind::Math(Math::Fill { tile: t, .. }) => format!("full {}", tile(t)),
            OpKind::Math(Math::Arange { tile: t, .. }) => format!("arange {}", tile(t)),
            OpKind::Math(Math::Unary { f, tile: t, .. }) => format!("{f:?} {}", tile(t)).to_lowercase(),
            OpKind::Math(Math::Binary { f, tile: t, .. } | Math::BinaryScalar { f, tile: t, .. }) => {
                format!("{f:?} {}", tile(t)).to_lowercase()
            }
            OpKind::Math(Math::Fma { tile: t, .. }) => format!("fma {}", tile(t)),
            OpKind::Math(Math::Clamp { tile: t, .. }) => format!("clamp {}", tile(t)),
            OpKind::Math(Math::Where { tile: t, .. }) => format!("where {}", tile(t)),
            OpKind::Math(Math::Reduce { f, tile: t, .. }) => format!("{f:?} {}", tile(t)).to_lowercase(),
            OpKind::Math(Math::Softmax { tile: t, .. }) => format!("softmax {}", tile(t)),
            OpKind::Math(Math::Dot { tile: t, .. }) => format!("dot {}", tile(t)),
            OpKind::Math(Math::Transpose { tile: t, .. }) => format!("trans {}", tile(t)),
            OpKind::Math(Math::Cast { tile: t, .. }) => format!("cast {}", tile(t)),
            OpKind::Comm(Comm::Send { dir: d, tile: t, .. }) => format!("send(dir=\"{}\") {}", dir(d), tile(t)),
            OpKind::Comm(Comm::AwaitSlot { dir: d }) => format!("await a slot (dir=\"{}\")", dir(d)),
            OpKind::Comm(Comm::Recv { dir: d, tile: t, .. }) => format!("recv(dir=\"{}\") {}", dir(d), tile(t)),
            OpKind::Comm(Comm::RecvAny { tile: t, .. }) => format!("recv(dir=None) {}", tile(t)),
            OpKind::Comm(Comm::PostRecv { dir: d, tile: t, .. }) => {
                format!("recv_async(dir=\"{}\") {}", dir(d), tile(t))
            }
            OpKind::Comm(Comm::Await { .. }) => "wait".into(),
            OpKind::Control(Control::Signal { counter, add, posted }) => {
                format!("{}signal counter {counter} +{add}", post(posted))
            }
            OpKind::Control(Control::Fence) => "fence".into(),
            OpKind::Control(Control::WaitCounter { counter, at_least }) => {
                format!("wait counter {counter} >= {at_least}")
            }
            OpKind::Control(Control::Acquire { counter, amount }) => format!("acquire {amount} of counter {counter}"),
            OpKind::Control(Control::Barrier { id }) => format!("barrier {id}"),
            OpKind::Control(Control::Delay { ps }) => format!("delay {ps} ps"),
        }
    }
}

impl Program {
    /// The program in words: one block per distinct body with the agents that run it, one operation per
    /// line with its operands and origin. Not a format to read back.
    ///
    /// Indices out of range print as `?`, so malformed programs can be shown too.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "program {}: {} agents, {} bodies, {} operations, {} channels, {} buffers, {} counters, {} barriers",
            if self.name.is_empty() { "?" } else { &self.name },
            self.agents.len(),
            self.bodies.len(),
            self.agents.iter().filter_map(|a| self.bodies.get(a.body as usize)).map(|b| b.ops.len()).sum::<usize>(),
            self.channels.len(),
            self.buffers.len(),
            self.counters,
            self.barriers.len(),
        )?;
        self.write_queues(out)?;
        let mut users = vec![Vec::new(); self.bodies.len()];
        for agent in &self.agents {
            if let Some(list) = users.get_mut(agent.body as usize) {
                list.push(agent.coord);
            }
        }
        for (index, body) in self.bodies.iter().enumerate() {
            write!(out, "\nbody {index}, {} agents:", users[index].len())?;
            for (i, at) in users[index].iter().take(AGENTS).enumerate() {
                write!(out, "{} {at}", if i == 0 { "" } else { "," })?;
            }
            if users[index].len() > AGENTS {
                write!(out, ", {} more", users[index].len() - AGENTS)?;
            }
            out.push('\n');
            for op in 0..body.ops.len() {
                self.write_op(out, body, op)?;
            }
        }
        Ok(())
    }

    /// Queues by layout: most programs have one.
    fn write_queues(&self, out: &mut String) -> fmt::Result {
        let mut layouts = indexmap::IndexMap::<(u32, u64, u32, u64), usize>::new();
        for c in &self.channels {
            *layouts.entry((c.slots, c.slot_bytes, c.tier, c.credit_bytes)).or_default() += 1;
        }
        for ((slots, bytes, tier, credit), count) in layouts {
            writeln!(
                out,
                "{count} queues of {slots} slots of {bytes} bytes in tier {tier}, credits of {credit} bytes"
            )?;
        }
        Ok(())
    }

    fn write_op(&self, out: &mut String, body: &Body, index: usize) -> fmt::Result {
        let start = out.len();
        write!(out, "{index:5}  ")?;
        body.write_op(out, index)?;
        let origin = body.origins.get(index).map(|&o| self.origins.text(o)).unwrap_or_default();
        if !origin.is_empty() {
            let width = out.len() - start;
            write!(out, "{:pad$}  {origin}", "", pad = 48usize.saturating_sub(width))?;
        }
        out.push('\n');
        Ok(())
    }
}

impl Body {
    /// An operation with its operands, in words.
    pub fn words(&self, index: usize) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_op(&mut text, index);
        text
    }

    fn write_op(&self, out: &mut String, index: usize) -> fmt::Result {
        let op = &self.ops[index];
        let operands = op.kind.operands();
        if let Some(dst) = op.defines() {
            write!(out, "%{} = ", dst.0)?;
        }
        let groups = [("from", operands.group_read), ("to", operands.group_written)];
        let groups = groups.into_iter().filter_map(|(way, group)| Some((way, group?)));
        let sound = operands.tile.is_none_or(|t| (t as usize) < self.tiles.len())
            && op.kind.direction().is_none_or(|d| usize::from(d) < self.directions.len())
            && groups.clone().all(|(_, group)| (group as usize) < self.groups.len());
        if sound {
            out.push_str(&op.describe(self))
        } else {
            write!(out, "? {:?}", op.kind)?
        }
        for value in operands.reads.into_iter().flatten() {
            write!(out, " %{}", value.0)?;
        }
        if let OpKind::Comm(Comm::Await { value }) = op.kind {
            write!(out, " %{}", value.0)?;
        }
        for scalar in operands.scalars.into_iter().flatten() {
            match self.scalars.get(scalar as usize) {
                Some(Scalar::Float(bits)) => write!(out, " {:?}", f64::from_bits(*bits))?,
                Some(Scalar::Int(n)) => write!(out, " {n}")?,
                None => out.push_str(" ?"),
            }
        }
        match op.kind {
            OpKind::Math(Math::BinaryScalar { swapped: true, .. }) => out.push_str(" swapped"),
            OpKind::Math(Math::Reduce { axis, .. } | Math::Softmax { axis, .. }) => write!(out, " axis {axis}")?,
            _ => {}
        }
        let single = [("from", operands.mem_read), ("to", operands.mem_written)];
        let single = single.into_iter().filter_map(|(way, mem)| Some((way, mem?)));
        let members = |(way, group): (_, u32)| self.groups.get(group as usize).map(|group| (way, group));
        let grouped = groups.filter_map(members).flat_map(|(way, group)| group.iter().map(move |&mem| (way, mem)));
        for (way, mem) in single.chain(grouped) {
            match self.mems.get(mem) {
                Some(Mem { buffer, offset }) => write!(out, " {way} buffer {buffer} + {offset}")?,
                None => write!(out, " {way} ?")?,
            }
        }
        Ok(())
    }
}
