//! The model-visible history as a tree of small operations.
//!
//! Every event that changes what the model sees adds one node that names its parent. Moving the
//! head is therefore only a matter of walking back to the root and doing the operations again; no
//! content is held here, only sequence numbers.

use std::collections::HashSet;

/// A tool call of an assistant message on the surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallSlot {
    pub(crate) call_id: String,
    pub(crate) started: Option<u64>,
    pub(crate) result: Option<u64>,
}

/// What an item is, as far as its place matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    System,
    Plain,
    Summary,
    Orphan,
}

/// One item of the surface. The results of its calls live inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) seq: u64,
    pub(crate) kind: SlotKind,
    pub(crate) calls: Vec<CallSlot>,
}

/// Where a call stands: its assistant message and its position among that message's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallPlace {
    pub(crate) assistant: u64,
    pub(crate) index: usize,
}

#[derive(Debug, Clone)]
enum Op {
    Push {
        kind: SlotKind,
        calls: Box<[String]>,
    },
    Start(CallPlace),
    Result(CallPlace),
    Compact {
        from: u64,
        to: u64,
        kept: Box<[u64]>,
    },
}

#[derive(Debug, Clone)]
struct Node {
    seq: u64,
    parent: Option<usize>,
    op: Op,
}

/// The surface and how it came to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surface {
    nodes: Vec<Node>,
    tip: Option<usize>,
    /// The tip in force after each event that changed it.
    timeline: Vec<(u64, Option<usize>)>,
    slots: Vec<Slot>,
    /// Calls that were ever started, also behind a head that has moved back: a rewind undoes no
    /// tool, so nobody may be told that such a call never ran.
    began: HashSet<CallPlace>,
}

impl Surface {
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn push(&mut self, seq: u64, kind: SlotKind, calls: Vec<String>) {
        self.grow(
            seq,
            Op::Push {
                kind,
                calls: calls.into(),
            },
        );
    }

    pub(crate) fn compact(&mut self, seq: u64, from: u64, to: u64, kept: &[u64]) {
        self.grow(
            seq,
            Op::Compact {
                from,
                to,
                kept: kept.into(),
            },
        );
    }

    /// Marks the newest unanswered, unstarted call with this id as started.
    pub(crate) fn start(&mut self, seq: u64, call_id: &str) -> Option<CallPlace> {
        let place = self.find(|call| {
            call.call_id == call_id && call.result.is_none() && call.started.is_none()
        })?;
        self.grow(seq, Op::Start(place));
        self.began.insert(place);
        Some(place)
    }

    /// Answers the unanswered call with this id in the newest message that has one: a started
    /// call before one that is not.
    pub(crate) fn answer(&mut self, seq: u64, call_id: &str) -> Option<CallPlace> {
        let open = |call: &CallSlot| call.call_id == call_id && call.result.is_none();
        let place = self
            .find(|call| open(call) && call.started.is_some())
            .or_else(|| self.find(open))?;
        self.grow(seq, Op::Result(place));
        Some(place)
    }

    /// Makes the surface what it was right after `seq`.
    pub(crate) fn move_head(&mut self, at: u64, seq: u64) {
        let found = self.timeline.partition_point(|(s, _)| *s <= seq);
        let tip = found
            .checked_sub(1)
            .and_then(|i| self.timeline.get(i))
            .and_then(|(_, tip)| *tip);
        self.tip = tip;
        self.timeline.push((at, tip));
        self.rebuild();
    }

    /// Calls on the surface that have no result, in order.
    pub(crate) fn open_calls(&self) -> impl Iterator<Item = (CallPlace, &CallSlot)> {
        self.slots.iter().flat_map(|slot| {
            slot.calls
                .iter()
                .enumerate()
                .filter(|(_, call)| call.result.is_none())
                .map(|(index, call)| {
                    (
                        CallPlace {
                            assistant: slot.seq,
                            index,
                        },
                        call,
                    )
                })
        })
    }

    /// Returns whether a call was ever started, wherever the head is now.
    pub(crate) fn began(&self, place: CallPlace) -> bool {
        self.began.contains(&place)
    }

    fn find(&self, wanted: impl Fn(&CallSlot) -> bool) -> Option<CallPlace> {
        self.slots.iter().rev().find_map(|slot| {
            let index = slot.calls.iter().position(&wanted)?;
            Some(CallPlace {
                assistant: slot.seq,
                index,
            })
        })
    }

    fn grow(&mut self, seq: u64, op: Op) {
        let node = Node {
            seq,
            parent: self.tip,
            op,
        };
        do_op(&mut self.slots, &node);
        self.tip = Some(self.nodes.len());
        self.nodes.push(node);
        self.timeline.push((seq, self.tip));
    }

    fn rebuild(&mut self) {
        let mut line = Vec::new();
        let mut at = self.tip;
        while let Some(node) = at.and_then(|i| self.nodes.get(i)) {
            line.push(node);
            at = node.parent;
        }
        let mut slots = Vec::new();
        for node in line.into_iter().rev() {
            do_op(&mut slots, node);
        }
        self.slots = slots;
    }
}

fn do_op(slots: &mut Vec<Slot>, node: &Node) {
    let call = |slots: &mut Vec<Slot>, place: &CallPlace, f: &dyn Fn(&mut CallSlot)| {
        let slot = slots
            .iter_mut()
            .rev()
            .find(|slot| slot.seq == place.assistant);
        if let Some(call) = slot.and_then(|slot| slot.calls.get_mut(place.index)) {
            f(call);
        }
    };
    match &node.op {
        Op::Push { kind, calls } => slots.push(Slot {
            seq: node.seq,
            kind: *kind,
            calls: calls
                .iter()
                .map(|id| CallSlot {
                    call_id: id.clone(),
                    started: None,
                    result: None,
                })
                .collect(),
        }),
        Op::Start(place) => call(slots, place, &|call| call.started = Some(node.seq)),
        Op::Result(place) => call(slots, place, &|call| call.result = Some(node.seq)),
        Op::Compact { from, to, kept } => {
            let gone = |slot: &Slot| {
                slot.kind != SlotKind::System
                    && (*from..=*to).contains(&slot.seq)
                    && !kept.contains(&slot.seq)
            };
            let at = slots.iter().position(gone).unwrap_or(slots.len());
            let summary = Slot {
                seq: node.seq,
                kind: SlotKind::Summary,
                calls: Vec::new(),
            };
            slots.insert(at, summary);
            slots.retain(|slot| slot.seq == node.seq || !gone(slot));
        }
    }
}
