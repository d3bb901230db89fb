//! A schedule is one thing: its program and its plan take the same time where only the network costs any.

use ahbm_emulator::{Options, simulate};
use ahbm_machine::{Coord, Machine};
use ahbm_plan::LowerOptions;
use ahbm_program::{BinaryFn, Comm, Dtype, OpKind, Program};
use ahbm_synthesis::{Collective, Elements, Graph, Request, lower, synthesize};

const SHARE: u64 = 6_000;

fn machine(topology: &str, sips: u32) -> Machine {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let set = |k: &str, v: String| (k.to_string(), v);
    let overrides = [
        set("system.sips.topology", topology.into()),
        set("system.sips.count", sips.to_string()),
        set("cube.pe_layout.pe_per_corner", "8".into()),
    ];
    Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap()
}

/// The agents of every NPU as the schedule's own lowering places them: what sends, one PE per port (at a switch one for
/// all), and what receives on one more.
fn one_agent_per_port(program: &mut Program, graph: &Graph, machine: &Machine) {
    let switch = graph.switch().is_some();
    let mut senders = vec![0; graph.nodes() as usize];
    for agent in &mut program.agents {
        let sip = agent.coord.sip;
        let sends =
            program.bodies[agent.body as usize].ops.iter().any(|op| matches!(op.kind, OpKind::Comm(Comm::Send { .. })));
        let ports = if switch { 1 } else { graph.out(sip).len() as u32 };
        let pe = if sends { senders[sip as usize] % ports } else { ports };
        senders[sip as usize] += u32::from(sends);
        agent.coord = Coord { pe, ..agent.coord };
        agent.place = machine.pe(agent.coord).expect("a PE for every port");
    }
}

#[test]
fn both_lowerings_take_the_schedules_time_where_pes_cost_nothing() {
    for (topology, sips) in [("ring_1d", 5), ("mesh_2d_no_wrap", 9), ("hypercube", 8), ("switch", 6)] {
        let machine = machine(topology, sips);
        let graph = Graph::of(&machine).unwrap();
        for (_, collective) in Collective::ALL {
            let request = Request {
                collective,
                share_bytes: SHARE,
                chunks: 2,
                unit: 4,
                members: vec![],
                root: 1,
                method: "auto".into(),
                seed: 1,
            };
            let limit = request.bound(&graph).unwrap();
            let found = synthesize(&graph, &request, &limit).unwrap();
            let elements = Elements { dtype: Dtype::I32, op: BinaryFn::Add, average: false };
            let mut options = LowerOptions::new(SHARE * u64::from(collective.shares(sips)), Dtype::I32);
            (options.slots, options.credit_bytes, options.slice_bytes) = (u32::MAX, 0, Some(u64::MAX));
            options.sips = found.schedule.places(&graph);
            let mut planned = found.schedule.to_plan(&graph).unwrap().lower(&machine, &options).unwrap().program;
            one_agent_per_port(&mut planned, &graph, &machine);
            let direct = lower(&found.schedule, &graph, &machine, elements).unwrap().program;
            let time = |program| simulate(program, &machine, &Options::default()).unwrap().latency;
            assert_eq!((time(&direct), time(&planned)), (found.time_ps, found.time_ps), "{topology} {collective:?}");
        }
    }
}
