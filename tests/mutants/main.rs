//! Mutations (docs/mutants.md): each piece that keeps a rule of the engine is taken out alone, and a test must fail.
//! The list is data beside this file. Every run of the tests checks that it is still true; `make mutants` runs it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a check that cannot read the tree fails loudly, and one that runs an hour tells how far it is"
)]

mod list;
mod report;
mod scratch;
mod weave;

use list::{Mutation, root};
use report::Report;
use scratch::{Scratch, Verdict};

#[test]
fn every_mutation_replaces_a_text_that_stands_exactly_once() {
    let mutations = list::read();
    let problems = mutations.iter().filter_map(|one| one.problem(root()));
    let problems: Vec<String> = problems.collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let mut names: Vec<&str> = mutations.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "two mutations of one name");
}

/// Where `MUTANTS` says which, as `make mutants` has it: it takes half an hour.
#[test]
fn every_mutation_is_killed() {
    let Ok(wanted) = std::env::var("MUTANTS") else {
        return;
    };
    let mutations = list::read();
    let chosen: Vec<&Mutation> = mutations
        .iter()
        .filter(|one| one.is_like(&wanted))
        .collect();
    let mut report = Report::read(&mutations);
    let mut alive = Vec::new();
    for (mutation, verdict) in judge(&chosen) {
        report.add(mutation, &verdict);
        if !matches!(verdict, Verdict::Killed(_)) {
            alive.push(mutation.to_string());
        }
    }
    println!("{}", report.write());
    assert!(alive.is_empty(), "not killed: {alive:#?}");
}

/// One build for all that can be woven, and one for each other.
fn judge<'a>(chosen: &[&'a Mutation]) -> Vec<(&'a Mutation, Verdict)> {
    let scratch = Scratch::new();
    let woven = scratch.weave(chosen);
    let built = scratch.build().unwrap_or_else(|why| panic!("{why}"));
    scratch.restore();
    assert_eq!(
        scratch.judge(&built, 0),
        Verdict::Survived,
        "without any mutation"
    );
    let tell = |mutation: &'a Mutation, verdict: Verdict| {
        println!("{mutation}: {verdict}");
        (mutation, verdict)
    };
    let numbered = (1..).zip(chosen.iter().copied());
    let (inside, alone): (Vec<_>, Vec<_>) = numbered.partition(|(at, _)| woven.contains(at));
    let inside = inside
        .into_iter()
        .map(|(at, one)| tell(one, scratch.judge(&built, at)));
    let mut judged: Vec<_> = inside.collect();
    let alone = alone
        .into_iter()
        .map(|(_, one)| tell(one, scratch.judge_alone(one)));
    judged.extend(alone);
    judged
}
