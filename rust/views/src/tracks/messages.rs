//! Which send is which receive: the k-th of a channel is the k-th.

use ahbm_emulator::Timeline;
use ahbm_machine::Ps;
use ahbm_program::{AgentId, ChannelId, Comm, OpKind, Program};

const NONE: u32 = u32::MAX;

/// A message, and when it came how far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Message {
    pub(super) channel: u32,
    pub(super) bytes: u64,
    pub(super) received: bool,
    /// The end of the send, which had its slot by then.
    pub(super) claimed: Ps,
    /// When its bytes were in the slot.
    pub(super) written: Ps,
    /// When the credit of its slot was back; `Ps::MAX` when it was not received.
    pub(super) freed: Ps,
}

/// Every message of a run, by channel and order.
pub(super) struct Messages {
    pub(super) all: Vec<Message>,
    /// Per agent the first of its operations in `of`.
    base: Vec<usize>,
    /// Per operation its message.
    of: Vec<u32>,
}

impl Messages {
    pub(super) fn new(program: &Program, timeline: &Timeline) -> Self {
        let mut base = Vec::with_capacity(program.agents.len());
        let mut total = 0;
        let mut sends: Vec<Vec<(usize, u64)>> = vec![Vec::new(); program.channels.len()];
        let mut receives: Vec<Vec<usize>> = vec![Vec::new(); program.channels.len()];
        for agent in (0..program.agents.len() as u32).map(AgentId) {
            base.push(total);
            let body = program.body(agent);
            let mut choices = timeline.choices.get(agent.0 as usize).into_iter().flatten();
            for (at, op) in (total..).zip(&body.ops) {
                let mut receive = |channel: ChannelId| receives[channel.0 as usize].push(at);
                match op.kind {
                    OpKind::Comm(Comm::Send { dir, tile, .. }) => {
                        let channel = program.tx(agent, dir).0 as usize;
                        sends[channel].push((at, body.tiles[tile as usize].bytes()));
                    }
                    OpKind::Comm(Comm::Recv { dir, .. } | Comm::PostRecv { dir, .. }) => {
                        receive(program.rx(agent, dir))
                    }
                    OpKind::Comm(Comm::RecvAny { .. }) => choices.next().into_iter().copied().for_each(receive),
                    _ => {}
                }
            }
            total += body.ops.len();
        }
        let mut messages = Self { all: Vec::new(), base, of: vec![NONE; total] };
        for (channel, (sends, receives)) in (0..).zip(sends.iter().zip(&receives)) {
            for (k, &(send, bytes)) in sends.iter().enumerate() {
                let number = messages.all.len() as u32;
                messages.of[send] = number;
                if let Some(&receive) = receives.get(k) {
                    messages.of[receive] = number;
                }
                let received = k < receives.len();
                messages.all.push(Message { channel, bytes, received, freed: Ps::MAX, ..Message::default() });
            }
        }
        messages
    }

    /// The number of the message that an operation sends or receives.
    pub(super) fn number(&self, agent: AgentId, op: u32) -> Option<u32> {
        let number = self.of.get(self.base[agent.0 as usize] + op as usize).copied();
        number.filter(|&number| number != NONE)
    }

    pub(super) fn get_mut(&mut self, agent: AgentId, op: u32) -> Option<&mut Message> {
        let number = self.number(agent, op)?;
        self.all.get_mut(number as usize)
    }
}
