//! The model-visible history as a tree of small operations.
//!
//! Every event that changes what the model sees adds one node that names its parent. Moving the
//! head is therefore only a matter of walking back to the root and doing the operations again; no
//! content is held here, only sequence numbers and the places of their lines.
//!
//! The tree does not grow without bound: what lies before a *horizon* is folded into one base. A
//! head that moves behind the horizon needs the surface of that point from outside.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::SURFACE_NODES;

/// Where a line is kept. Opaque to everyone but the storage; all zero when it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Byte offset of the line in its log.
    pub at: u64,
    /// Its length in bytes, LF included.
    pub len: u32,
}

/// A tool call of an assistant message on the surface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallSlot {
    pub(crate) call_id: Arc<str>,
    pub(crate) started: Option<u64>,
    pub(crate) result: Option<(u64, Place)>,
    /// Whether a head has moved back to where the call had no result. A rewind undoes no tool, so
    /// nobody may be told that such a call never ran.
    doubtful: bool,
}

impl CallSlot {
    /// Whether the call ran, or may have.
    pub(crate) fn may_have_run(&self) -> bool {
        self.started.is_some() || self.doubtful
    }
}

/// What an item is, as far as its place matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SlotKind {
    System,
    Plain,
    Summary,
    Orphan,
}

/// One item of the surface. The results of its calls live inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot {
    pub(crate) seq: u64,
    pub(crate) place: Place,
    pub(crate) kind: SlotKind,
    /// Shared between copies of the surface until one of them changes.
    pub(crate) calls: Arc<[CallSlot]>,
}

impl Slot {
    /// Returns the events whose content the item needs, in the order the model sees them.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u64, Place)> {
        let results = self.calls.iter().filter_map(|call| call.result);
        std::iter::once((self.seq, self.place)).chain(results)
    }
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
        place: Place,
        calls: Box<[Arc<str>]>,
    },
    Start(CallPlace),
    Result(CallPlace, Place),
    Compact {
        place: Place,
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

/// The surface and how it came to be since the horizon.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surface {
    /// The surface right before event `horizon`.
    base: Vec<Slot>,
    horizon: u64,
    nodes: Vec<Node>,
    tip: Option<usize>,
    /// The tip in force after each event that changed it.
    timeline: Vec<(u64, Option<usize>)>,
    slots: Vec<Slot>,
}

impl Surface {
    /// Starts with what the surface is right before event `horizon`.
    pub(crate) fn starting(slots: Vec<Slot>, horizon: u64) -> Self {
        Self {
            base: slots.clone(),
            horizon,
            slots,
            ..Self::default()
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn into_slots(self) -> Vec<Slot> {
        self.slots
    }

    pub(crate) fn push(&mut self, seq: u64, place: Place, kind: SlotKind, calls: Vec<Arc<str>>) {
        let calls = calls.into();
        self.grow(seq, Op::Push { kind, place, calls });
    }

    pub(crate) fn compact(&mut self, seq: u64, place: Place, from: u64, to: u64, kept: &[u64]) {
        let kept = kept.into();
        self.grow(
            seq,
            Op::Compact {
                place,
                from,
                to,
                kept,
            },
        );
    }

    /// Marks the newest unanswered, unstarted call with this id as started.
    pub(crate) fn start(&mut self, seq: u64, call_id: &str) -> Option<CallPlace> {
        let place = self.find(|call| {
            &*call.call_id == call_id && call.result.is_none() && call.started.is_none()
        })?;
        self.grow(seq, Op::Start(place));
        Some(place)
    }

    /// Answers the unanswered call with this id in the newest message that has one: a started
    /// call before one that is not.
    pub(crate) fn answer(&mut self, seq: u64, at: Place, call_id: &str) -> Option<CallPlace> {
        let open = |call: &CallSlot| &*call.call_id == call_id && call.result.is_none();
        let place = self
            .find(|call| open(call) && call.started.is_some())
            .or_else(|| self.find(open))?;
        self.grow(seq, Op::Result(place, at));
        Some(place)
    }

    /// Returns the open call that something said about this id is about: in the newest message
    /// that has one, a started call before one that is not.
    pub(crate) fn about(&self, call_id: &str) -> Option<CallPlace> {
        let open = |call: &CallSlot| &*call.call_id == call_id && call.result.is_none();
        let newest = self.find(open)?;
        let slot = self
            .slots
            .iter()
            .rev()
            .find(|s| s.seq == newest.assistant)?;
        let started = slot
            .calls
            .iter()
            .position(|call| open(call) && call.started.is_some());
        Some(started.map_or(newest, |index| CallPlace { index, ..newest }))
    }

    /// Whether what the surface was right after an event can be told from what is kept here.
    pub(crate) fn reaches(&self, seq: u64) -> bool {
        seq.saturating_add(1) >= self.horizon
    }

    /// Makes the surface what it was right after `seq`, which must be within reach.
    pub(crate) fn move_head(&mut self, at: u64, seq: u64) {
        let found = self.timeline.partition_point(|(s, _)| *s <= seq);
        let tip = found
            .checked_sub(1)
            .and_then(|i| self.timeline.get(i))
            .and_then(|(_, tip)| *tip);
        self.tip = tip;
        self.timeline.push((at, tip));
        self.rebuild();
        doubt(&mut self.slots);
    }

    /// Makes the surface what somebody else has found it to be at an earlier point.
    pub(crate) fn replace(&mut self, at: u64, mut slots: Vec<Slot>) {
        doubt(&mut slots);
        *self = Self::starting(slots, at.saturating_add(1));
    }

    /// Folds everything into the base once the tree has become much larger than the surface, with
    /// `next` as the new horizon. Returns whether it did.
    pub(crate) fn prune(&mut self, next: u64) -> bool {
        // Looked at on every event, so the sum over the surface only now and then.
        let nodes = self.nodes.len();
        if nodes == 0 || !nodes.is_multiple_of(SURFACE_NODES) {
            return false;
        }
        let live: usize = self.slots.iter().map(|slot| 1 + slot.calls.len()).sum();
        if nodes < 4 * live {
            return false;
        }
        self.settle(next);
        true
    }

    /// Folds everything into the base, with `next` as the new horizon.
    pub(crate) fn settle(&mut self, next: u64) {
        let mut slots = std::mem::take(&mut self.slots);
        // Of several system prompts only the last counts, and no head can bring back another.
        let last = slots.iter().rposition(|slot| slot.kind == SlotKind::System);
        let mut index = 0;
        slots.retain(|slot| {
            let stays = slot.kind != SlotKind::System || Some(index) == last;
            index += 1;
            stays
        });
        *self = Self::starting(slots, next);
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
        let mut slots = self.base.clone();
        for node in line.into_iter().rev() {
            do_op(&mut slots, node);
        }
        self.slots = slots;
    }
}

fn open_calls(ids: &[Arc<str>]) -> Arc<[CallSlot]> {
    if ids.is_empty() {
        // All empty ones are the same, which needs no memory.
        return Arc::default();
    }
    let calls = ids.iter().map(|id| CallSlot {
        call_id: id.clone(),
        started: None,
        result: None,
        doubtful: false,
    });
    calls.collect()
}

fn doubt(slots: &mut [Slot]) {
    let open = |call: &CallSlot| call.result.is_none() && !call.doubtful;
    for slot in slots.iter_mut().filter(|slot| slot.calls.iter().any(open)) {
        let calls = Arc::make_mut(&mut slot.calls);
        for call in calls.iter_mut().filter(|call| open(call)) {
            call.doubtful = true;
        }
    }
}

fn do_op(slots: &mut Vec<Slot>, node: &Node) {
    let call = |slots: &mut Vec<Slot>, place: &CallPlace, f: &dyn Fn(&mut CallSlot)| {
        let slot = slots
            .iter_mut()
            .rev()
            .find(|slot| slot.seq == place.assistant);
        if let Some(slot) = slot
            && let Some(call) = Arc::make_mut(&mut slot.calls).get_mut(place.index)
        {
            f(call);
        }
    };
    match &node.op {
        Op::Push { kind, place, calls } => slots.push(Slot {
            seq: node.seq,
            place: *place,
            kind: *kind,
            calls: open_calls(calls),
        }),
        Op::Start(place) => call(slots, place, &|call| call.started = Some(node.seq)),
        Op::Result(place, at) => call(slots, place, &|call| {
            call.result = Some((node.seq, *at));
            call.doubtful = false;
        }),
        Op::Compact {
            place,
            from,
            to,
            kept,
        } => {
            let gone = |slot: &Slot| {
                slot.kind != SlotKind::System
                    && (*from..=*to).contains(&slot.seq)
                    && !kept.contains(&slot.seq)
            };
            let at = slots.iter().position(gone).unwrap_or(slots.len());
            let summary = Slot {
                seq: node.seq,
                place: *place,
                kind: SlotKind::Summary,
                calls: Arc::default(),
            };
            slots.insert(at, summary);
            slots.retain(|slot| slot.seq == node.seq || !gone(slot));
        }
    }
}
