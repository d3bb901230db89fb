//! Trees against a walk over their arrays, rules against the definition of "the first that fits".

use ahbm_selection::{Call, Input, Rule, Rules, Span, Tree};
use proptest::prelude::*;

fn call(bytes: u64, ranks: u32) -> Call {
    Call { bytes, ranks, nodes: 1, item: 2 }
}

/// Feature, threshold, left, right and value of each node.
type Arrays = (Vec<i64>, Vec<f64>, Vec<i64>, Vec<i64>, Vec<u32>);

/// A complete tree of `depth` questions, in the order of scikit-learn: a node, all of its left side, its right side.
fn complete(depth: u32, questions: &[(i64, f64)]) -> Arrays {
    fn grow(depth: u32, questions: &[(i64, f64)], found: &mut Arrays, leaves: &mut u32) -> i64 {
        let at = found.0.len();
        let (feature, threshold) = if depth == 0 { (-2, -2.0) } else { questions[at % questions.len()] };
        found.0.push(feature);
        found.1.push(threshold);
        found.2.push(-1);
        found.3.push(-1);
        found.4.push(*leaves);
        if depth == 0 {
            *leaves += 1;
        } else {
            found.2[at] = grow(depth - 1, questions, found, leaves);
            found.3[at] = grow(depth - 1, questions, found, leaves);
        }
        at as i64
    }
    let mut found = Arrays::default();
    grow(depth, questions, &mut found, &mut 0);
    found
}

proptest! {
    #[test]
    fn a_tree_answers_as_a_walk_over_its_arrays(
        questions in prop::collection::vec((0i64..3, 0.0f64..40.0), 1..8),
        bytes in any::<u64>(), ranks in 1u32..4096,
    ) {
        let inputs = vec![Input::Log2Bytes, Input::Ranks, Input::Constant(7.5)];
        let row = [(bytes.max(1) as f64).log2() as f32, ranks as f32, 7.5];
        let (feature, threshold, left, right, value) = complete(5, &questions);
        let tree = Tree::new(inputs, &feature, &threshold, &left, &right, &value).unwrap();
        let mut at = 0;
        while feature[at] >= 0 {
            let low = f64::from(row[feature[at] as usize]) <= threshold[at];
            at = if low { left[at] } else { right[at] } as usize;
        }
        prop_assert_eq!(tree.choose(&call(bytes, ranks)), value[at]);
    }

    #[test]
    fn the_first_rule_that_fits_is_taken(
        rows in prop::collection::vec((0u64..64, 0u64..64, any::<bool>(), 0u64..8, 0u64..8, 0u64..4), 0..20),
        bytes in 0u64..64, ranks in 1u32..8, nodes in 1u32..4, after in 0u32..4,
    ) {
        let rule = |&(a, b, per_rank, c, d, each): &(u64, u64, bool, u64, u64, u64)| Rule {
            bytes: Span { least: a.min(b), most: a.max(b) },
            per_rank,
            ranks: Span { least: c.min(d), most: c.max(d) },
            ranks_per_node: Span { least: each, most: u64::MAX },
            ..Rule::any(if (a + b) % 3 == 0 { "all_gather" } else { "all_reduce" })
        };
        let rules: Vec<Rule> = rows.iter().map(rule).collect();
        let wanted = (after as usize..rules.len()).find(|&at| {
            let rule = &rules[at];
            let size = if rule.per_rank { bytes / u64::from(ranks) } else { bytes };
            rule.collective == "all_reduce"
                && (rule.bytes.least..=rule.bytes.most).contains(&size)
                && (rule.ranks.least..=rule.ranks.most).contains(&u64::from(ranks))
                && rule.ranks_per_node.least <= u64::from(ranks / nodes)
        });
        let asked = Call { nodes, ..call(bytes, ranks) };
        prop_assert_eq!(Rules::new(rules).first("all_reduce", &asked, after), wanted.map(|at| at as u32));
    }

    #[test]
    fn arrays_of_any_numbers_are_a_tree_that_ends_or_are_refused(
        feature in prop::collection::vec(-2i64..3, 0..6),
        threshold in prop::collection::vec(any::<f64>(), 0..6),
        left in prop::collection::vec(-2i64..8, 0..6),
        right in prop::collection::vec(-2i64..8, 0..6),
    ) {
        let value = vec![0; feature.len()];
        if let Ok(tree) = Tree::new(vec![Input::Bytes], &feature, &threshold, &left, &right, &value) {
            prop_assert_eq!(tree.choose(&call(1 << 20, 8)), 0);
        }
    }
}

#[test]
fn a_border_is_compared_in_single_precision_as_scikit_learn_does() {
    // 0.1 in single precision is above 0.1 in double precision.
    let at = |value: f64| {
        Tree::new(vec![Input::Constant(value)], &[0, -2, -2], &[0.1, 0., 0.], &[1, -1, -1], &[2, -1, -1], &[0, 1, 2])
            .unwrap()
            .choose(&call(1, 1))
    };
    assert_eq!([at(0.099), at(0.1)], [1, 2]);
}

#[test]
fn a_child_before_its_node_is_refused() {
    let found = Tree::new(vec![Input::Bytes], &[0, 0, -2], &[1.; 3], &[1, 0, -1], &[2, 2, -1], &[0; 3]).unwrap_err();
    assert_eq!(found.to_string(), "node 1: its child 0 is not between 2 and 2");
}
