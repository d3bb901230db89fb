//! Receives: at once, from any direction, and those that were posted.

use super::Sim;
use super::agent::{Agent, Extra, Pause, Wait};
use super::recorder::Recorder;
use crate::detail::{Kind, PieceId};
use ahbm_engine::{FifoId, Time};
use ahbm_program::{AgentId, ChannelId, ValueId};

impl Agent {
    #[inline]
    pub(super) fn receive(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        me: AgentId,
        dir: u16,
        bytes: u64,
        start: Time,
    ) -> Result<Time, Pause> {
        let channel = sim.rx(me, dir);
        let background = sim.wiring.channels[channel.0 as usize].background;
        if background != u32::MAX {
            let state = &sim.backgrounds[background as usize];
            if self.phase == 0 {
                let issued = self.issue(sim, me, start);
                self.at = Time::from(state.post(sim, start, (bytes, self.free), issued));
                self.phase = 1;
            }
            let (end, done) = self.completion(sim, background, self.at as u32, start)?;
            sim.recorder.end(me, sim.recorder.join(Kind::Await, sim.recorder.last(me), done));
            return Ok(end);
        }
        let fifo = FifoId(channel.0);
        let Some(arrival) = sim.fifos.try_take(fifo) else {
            sim.fifos.receiver(fifo).enter(&sim.engine);
            return self.park(Wait::Message(channel));
        };
        let (end, piece) = sim.consume(channel, (bytes, self.free), start, arrival, self.issue(sim, me, start));
        sim.recorder.end(me, piece);
        Ok(end)
    }

    pub(super) fn await_posted(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        me: AgentId,
        value: ValueId,
        start: Time,
    ) -> Result<Time, Pause> {
        let posted = |extra: &Extra| extra.posted.iter().position(|p| p.0 == value);
        let Some(at) = self.extra.as_deref().and_then(posted) else {
            self.issue(sim, me, start);
            return Ok(start);
        };
        let (_, background, position) = self.extra.get_or_insert_default().posted[at];
        let (end, done) = self.completion(sim, background, position, start)?;
        self.extra.get_or_insert_default().posted.swap_remove(at);
        let issued = self.issue(sim, me, start);
        sim.recorder.end(me, sim.recorder.join(Kind::Await, issued, done));
        Ok(end)
    }

    /// Waits for the posted receive at `position` of a background process.
    fn completion(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        background: u32,
        position: u32,
        start: Time,
    ) -> Result<(Time, PieceId), Pause> {
        let state = &sim.backgrounds[background as usize];
        match state.completion(position) {
            Some((done, piece)) => Ok((start.max(done), piece)),
            None => {
                state.agent.enter(&sim.engine);
                self.park(Wait::Message(sim.wiring.backgrounds[background as usize].channel))
            }
        }
    }

    /// Takes the first message, in turn, that is there. The arrivals up to a time are known only once the
    /// engine has reached that time, hence the pauses.
    pub(super) fn receive_any(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        me: AgentId,
        bytes: u64,
        start: Time,
    ) -> Result<Time, Pause> {
        let inbound = sim.wiring.inbound.get(&me).map_or(&[][..], Vec::as_slice);
        if self.phase == 0 {
            self.at = start;
            self.phase = 1;
        }
        for channel in inbound {
            sim.fifos.receiver(FifoId(channel.0)).leave();
        }
        if self.at > sim.engine.now() {
            return Err(Pause::Until(self.at));
        }
        let count = inbound.len() as u32;
        let here = |i: &u32| sim.fifos.peek(FifoId(inbound[*i as usize].0)).is_some_and(|arrival| arrival <= self.at);
        if let Some(i) = (0..count).map(|i| (self.turn + i) % count).find(here) {
            let channel = inbound[i as usize];
            let arrival = sim.fifos.try_take(FifoId(channel.0)).unwrap_or(self.at);
            self.turn = (i + 1) % count;
            self.extra.get_or_insert_default().choices.push(channel);
            let (end, piece) = sim.consume(channel, (bytes, self.free), start, arrival, self.issue(sim, me, start));
            sim.recorder.end(me, piece);
            return Ok(end);
        }
        if let Some(arrival) = inbound.iter().filter_map(|c| sim.fifos.peek(FifoId(c.0))).min() {
            self.at = arrival;
            return Err(Pause::Until(arrival));
        }
        for channel in inbound {
            sim.fifos.receiver(FifoId(channel.0)).enter(&sim.engine);
        }
        self.park(Wait::AnyMessage)
    }
}

impl<R: Recorder> Sim<'_, R> {
    /// Takes a message, the last one taken, out of its slot: slot read, credit. `own` is what the receiver did
    /// until `start`; a `free` receive costs nothing. Returns the receive's end and the piece that ends then.
    #[inline]
    pub(super) fn consume(
        &self,
        channel: ChannelId,
        (bytes, free): (u64, bool),
        start: Time,
        arrival: Time,
        own: PieceId,
    ) -> (Time, PieceId) {
        let wiring = &self.wiring.channels[channel.0 as usize];
        let (control, access, credit) = match free {
            true => (0, 0, 0),
            false => {
                let access = self.wiring.tiers[wiring.tier as usize].access_ps(wiring.wire.bytes(bytes));
                (self.costs.ipcq_recv_ps, access, wiring.credit)
            }
        };
        let read = (start + control).max(arrival) + access;
        let credited = read + credit;
        let index = self.fifos.progress(FifoId(channel.0)).1.wrapping_sub(1);
        let pieces = self.recorder.consume(channel, index, own, (control, access, credit));
        self.fifos.release(FifoId(channel.0), credited, &self.engine);
        if self.costs.credit_blocks_receiver { (credited, pieces.1) } else { (read, pieces.0) }
    }
}
