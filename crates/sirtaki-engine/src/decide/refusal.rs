//! What cannot be done: the table refuses it for all ranks that have asked for it, and for no others.
//!
//! A refusal applies to requests, not just to their names. While it is on its way, a rank that had not asked may submit
//! a tensor of the same name. That request is a new one, of which the table hears later, so it has to stay; therefore a
//! refusal lists for every name the ranks that had not asked.
//!
//! The tensors of a group run together or not at all. So a refused one takes its whole group with it, and the groups to
//! which other ranks have assigned any of these tensors.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::decide::{
    agree::Table,
    check::{check, name_ranks},
    message::{Id, Refusal, Verdict},
    request::Request,
    slot::Slot,
};

/// The name of the group that a request is part of.
fn group(request: &Arc<Request>) -> Option<&str> {
    Some(request.bundle.as_ref()?.name.as_str())
}

impl Table {
    /// Refuses groups that ranks disagree about and releases those that are complete. Ranks announce a whole group at
    /// once, so nothing of a refused one is still to come from a rank that has announced any of it.
    pub(super) fn settle_bundles(&mut self) {
        let wrong = |ids: &Vec<Id>| ids.iter().find_map(|&id| Some((id, self.examine(id).err()?)));
        let mut refused: Vec<(Id, String)> = self.bundles.values().filter_map(wrong).collect();
        for (id, text) in refused.drain(..) {
            if self.slots[id as usize].ready {
                self.refuse([id], text);
            }
        }
        let bundles = std::mem::take(&mut self.bundles);
        let (complete, waiting): (BTreeMap<_, _>, _) =
            bundles.into_iter().partition(|((_, size), ids): &(_, Vec<Id>)| ids.len() >= *size);
        self.bundles = waiting;
        self.ready.extend(complete.into_values().flatten());
    }

    /// What is wrong with a complete slot, or its rows.
    pub(super) fn examine(&self, id: Id) -> Result<Vec<usize>, String> {
        let slot = &self.slots[id as usize];
        if let Some(&rank) = slot.twice.first() {
            let who = name_ranks(&[rank]);
            return Err(format!(
                "\"{}\": {who} submitted it again before it was done; names are used once at a time",
                slot.name
            ));
        }
        let own_rows = slot.first().is_some_and(|request| request.operation.has_own_rows());
        if slot.fresh || own_rows || !self.joined.is_empty() { check(&slot.wants) } else { Ok(Vec::new()) }
    }

    /// Refuses these, with everything that would have to run together with them.
    pub(super) fn refuse(&mut self, ids: impl IntoIterator<Item = Id>, text: String) {
        let ids = self.with_groups(ids.into_iter().collect());
        let mut refusals = Vec::new();
        for &id in &ids {
            let slot = &mut self.slots[id as usize];
            let not_asked = (0..self.size).filter(|&rank| slot.wants[rank].is_none()).collect();
            refusals.push(Refusal { name: slot.name.clone(), not_asked });
            slot.clear();
            slot.fresh = true;
            self.wanted.remove(&id);
        }
        self.ready.retain(|id| !ids.contains(id));
        self.bundles.values_mut().for_each(|waiting| waiting.retain(|id| !ids.contains(id)));
        self.bundles.retain(|_, waiting| !waiting.is_empty());
        self.cycle.forget();
        self.said.push(Verdict::Refuse(refusals, text));
    }

    fn with_groups(&self, mut ids: BTreeSet<Id>) -> BTreeSet<Id> {
        let groups_of =
            |slot: &Slot| slot.wants.iter().flatten().filter_map(group).map(str::to_owned).collect::<Vec<_>>();
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut new: Vec<String> = ids.iter().flat_map(|&id| groups_of(&self.slots[id as usize])).collect();
        while let Some(name) = new.pop() {
            if !known.insert(name.clone()) {
                continue;
            }
            let is_of_it =
                |slot: &Slot| slot.wants.iter().flatten().any(|request| group(request) == Some(name.as_str()));
            for &id in self.wanted.iter().filter(|&&id| is_of_it(&self.slots[id as usize])) {
                ids.insert(id);
                new.extend(groups_of(&self.slots[id as usize]));
            }
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sirtaki_comm::{DType, Reduction};

    use super::*;
    use crate::decide::{
        fuse::Limits,
        order::{Member, Step},
        request::{Bundle, Operation},
    };

    fn request(name: &str, group: Option<(&str, usize)>) -> Arc<Request> {
        let bundle = group.map(|(name, size)| Bundle { name: name.into(), size });
        Arc::new(Request { bundle, ..Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[1]) })
    }

    /// Rank 0, which keeps the table, and another rank.
    struct Pair {
        table: Table,
        ranks: [Member; 2],
    }

    impl Pair {
        fn new() -> Self {
            let table = Table::new(2, Limits { fused: 1024, large: 512 });
            Self { table, ranks: [Member::new(0), Member::new(1)] }
        }

        fn submit(&mut self, rank: usize, requests: &[Arc<Request>]) {
            requests.iter().for_each(|request| self.ranks[rank].submit(request.clone(), Duration::ZERO));
        }

        /// The table hears what a rank has to say; its verdicts are on their way.
        fn speak(&mut self, rank: usize) -> Vec<Verdict> {
            for spoken in self.ranks[rank].words() {
                self.table.hear(rank, spoken, Duration::ZERO);
            }
            self.table.decide()
        }

        /// What both ranks do about these verdicts.
        fn obey(&mut self, verdicts: &[Verdict]) -> [Vec<Step>; 2] {
            self.ranks.each_mut().map(|member| {
                verdicts.iter().for_each(|verdict| member.hear(verdict.clone()));
                std::iter::from_fn(|| member.next_step().filter(|step| *step != Step::Speak)).collect()
            })
        }
    }

    fn refused(step: &Step) -> Vec<&str> {
        let Step::Refused(names, _) = step else { panic!("{step:?}") };
        names.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_request_that_comes_after_the_refusal_stays() {
        let mut pair = Pair::new();
        pair.submit(0, &[request("a", Some(("g", 2))), request("b", Some(("g", 2)))]);
        assert!(pair.speak(0).is_empty());
        pair.submit(1, &[request("a", Some(("g", 1)))]);
        let verdicts = pair.speak(1);
        // Before the refusal is here.
        pair.submit(1, &[request("b", None)]);
        let [first, second] = pair.obey(&verdicts);
        assert_eq!((refused(&first[0]), refused(&second[0])), (vec!["a", "b"], vec!["a"]));
        assert!(pair.speak(1).is_empty());
        pair.submit(0, &[request("b", None)]);
        let verdicts = pair.speak(0);
        for steps in pair.obey(&verdicts) {
            assert!(matches!(&steps[..], [Step::Run(batch)] if batch.entries.len() == 1), "{steps:?}");
        }
    }

    #[test]
    fn a_refused_tensor_takes_its_groups_along() {
        let mut pair = Pair::new();
        pair.submit(0, &[request("a", None), request("c", Some(("other", 2)))]);
        assert!(pair.speak(0).is_empty());
        pair.submit(1, &[request("a", Some(("g", 2))), request("b", Some(("g", 2)))]);
        let verdicts = pair.speak(1);
        let [first, second] = pair.obey(&verdicts);
        assert_eq!((refused(&first[0]), refused(&second[0])), (vec!["a"], vec!["a", "b"]));
        // Nothing is left of it that could complete another group of that name too early.
        let again = [request("a", Some(("g", 2))), request("b", Some(("g", 2)))];
        pair.submit(0, &again);
        pair.submit(1, &again);
        assert!(pair.speak(0).is_empty());
        let verdicts = pair.speak(1);
        let entries = |verdict: &Verdict| match verdict {
            Verdict::Run(batches) => batches.iter().map(|batch| batch.entries.len()).sum(),
            _ => 0_usize,
        };
        assert_eq!(verdicts.iter().map(entries).sum::<usize>(), 2, "{verdicts:?}");
    }

    #[test]
    fn groups_of_one_name_and_different_sizes_leave_nothing_behind() {
        let mut pair = Pair::new();
        pair.submit(0, &[request("a", Some(("g", 3))), request("b", Some(("g", 2)))]);
        pair.submit(1, &[request("a", Some(("g", 2))), request("b", Some(("g", 2)))]);
        assert!(pair.speak(0).is_empty());
        assert_eq!(pair.speak(1).len(), 1);
        assert!(pair.table.bundles.is_empty() && !pair.table.is_waited_at());
    }
}
