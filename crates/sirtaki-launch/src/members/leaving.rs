//! Members that take part in no further round: who has to go, who may go, and who is ended.

use super::{
    Decision, MemberId, Members,
    state::{Member, State},
};

impl Members {
    /// Of a host with fewer slots than processes, the youngest have to leave.
    pub(super) fn shrink(&mut self, decisions: &mut Vec<Decision>) {
        for host in 0..self.hosts.len() {
            let here = |member: &&mut Member| self.hosts.of_seat(member.seat) == host && !member.leaving;
            let mut staying: Vec<&mut Member> = self.members.iter_mut().filter(here).collect();
            while staying.len() > self.hosts.slots(host) {
                let Some(member) = staying.pop() else { break };
                member.leaving = true;
                if member.state == State::Starting {
                    member.killed = true;
                    decisions.push(Decision::Kill { member: member.id });
                }
            }
        }
    }

    pub(super) fn dismiss(&mut self, decisions: &mut Vec<Decision>) {
        let (now, finished) = (self.now, self.finished);
        // Who comes when the others are done is not needed any more.
        let needless = |member: &Member| member.leaving || finished && !member.knew();
        for member in self.members.iter_mut().filter(|member| member.is_asking() && needless(member)) {
            member.leaving = true;
            member.state = State::Dismissed { since: now };
            decisions.push(Decision::Dismiss { member: member.id });
        }
    }

    pub(super) fn end_late(&mut self, decisions: &mut Vec<Decision>) {
        let first = self.first_ask();
        let late = |member: &&Member| self.deadline(member, first).is_some_and(|time| self.now >= time);
        let late: Vec<MemberId> = self.members.iter().filter(late).map(|member| member.id).collect();
        for id in late {
            self.of_mut(id).into_iter().for_each(|member| member.killed = true);
            decisions.push(Decision::Kill { member: id });
        }
    }

    /// Whether one that has the state wants to leave, and nobody stays who has it.
    pub(super) fn hands_over_to_nobody(&self) -> bool {
        let goes = |member: &Member| member.is_asking() && member.leaving && member.holds;
        let stays = |member: &Member| !member.leaving && (member.holds || matches!(member.state, State::In { .. }));
        self.members.iter().any(goes) && !self.members.iter().any(stays)
    }
}
