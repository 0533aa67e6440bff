//! What an agent writes, batch after batch: whole turns, with the barriers that an agent sets.

use std::collections::VecDeque;

use threadline_session::{Event, Payload};
use threadline_store::contract::script;

use super::rng::Rng;

/// Text of a random length: mostly short, sometimes of many sectors.
fn words(rng: &mut Rng) -> String {
    let len = match rng.below(20) {
        0 => 20_000 + rng.below(60_000),
        1..=4 => 1_000 + rng.below(8_000),
        _ => 10 + rng.below(400),
    };
    let tag = format!("{:016x} ", rng.next());
    tag.chars().cycle().take(len as usize).collect()
}

/// The batches of a session's turns.
#[derive(Debug)]
pub(crate) struct Script {
    turn: u64,
    queue: VecDeque<(Vec<Payload>, bool)>,
}

impl Script {
    /// Goes on after the last turn that was begun.
    pub(crate) fn after(turn: u64) -> Self {
        Self {
            turn,
            queue: VecDeque::new(),
        }
    }

    pub(crate) fn between_turns(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next batch, and whether the agent waits for it to be durable.
    pub(crate) fn next(&mut self, rng: &mut Rng) -> (Vec<Payload>, bool) {
        if self.queue.is_empty() {
            self.write_turn(rng);
        }
        self.queue.pop_front().expect("a turn has batches")
    }

    fn write_turn(&mut self, rng: &mut Rng) {
        self.turn += 1;
        let turn = self.turn;
        // Numbers of steps rise over the whole session.
        let (first, second) = (2 * turn - 1, 2 * turn);
        let prompt = vec![script::turn_start(turn), script::user(&words(rng))];
        self.queue.push_back((prompt, true));
        let chunks = |queue: &mut VecDeque<_>, step, rng: &mut Rng| {
            queue.push_back((vec![script::step_start(turn, step)], false));
            for _ in 0..rng.below(12) {
                let chunk = vec![script::chunk(turn, step, &words(rng))];
                queue.push_back((chunk, rng.one_in(8)));
            }
        };
        chunks(&mut self.queue, first, rng);
        if rng.one_in(2) {
            let (a, b) = (format!("a{turn}"), format!("b{turn}"));
            let calls = vec![
                script::calls(turn, first, &[&a, &b]),
                script::tool_start(&a),
            ];
            self.queue.push_back((calls, true));
            let result = vec![script::tool_result(&a, &words(rng)), script::tool_start(&b)];
            self.queue.push_back((result, true));
            let last = script::tool_result(&b, &words(rng));
            self.queue
                .push_back((vec![last, script::step_end(turn, first)], true));
            chunks(&mut self.queue, second, rng);
            let answer = script::answer(turn, second, &words(rng));
            self.queue
                .push_back((vec![answer, script::step_end(turn, second)], false));
        } else {
            let answer = script::answer(turn, first, &words(rng));
            self.queue
                .push_back((vec![answer, script::step_end(turn, first)], false));
        }
        self.queue
            .push_back((vec![script::turn_end(turn)], !rng.one_in(3)));
    }
}

/// Some events that depend on no others.
pub(crate) fn loose(first: u64, rng: &mut Rng) -> Vec<Event> {
    let events = 1 + rng.below(4);
    (first..first + events)
        .map(|seq| {
            let data = format!("{{\"n\":{seq},\"words\":\"{}\"}}", words(rng));
            script::vendor(seq, &data, true)
        })
        .collect()
}
