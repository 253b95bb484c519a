//! Which member a connection goes to.

use parking_lot::Mutex;

use crate::endpoints::Target;

/// In this many connections, one goes to a member of weight 0 where others have a weight.
const UNWEIGHTED_EVERY: u32 = 100;

/// The members, and which of them are left out.
#[derive(Debug)]
pub(crate) struct Balancer {
    targets: Vec<Target>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// For each member, whether it is left out.
    down: Vec<bool>,
    /// Counts connections, so that they go round.
    turn: usize,
}

impl Balancer {
    /// All members are thought to answer.
    pub(crate) fn new(targets: Vec<Target>) -> Balancer {
        let state = Mutex::new(State { down: vec![false; targets.len()], turn: 0 });
        Balancer { targets, state }
    }

    /// How many members there are.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    /// A member by the number that [`Balancer::pick`] gives.
    pub(crate) fn target(&self, place: usize) -> Option<&Target> {
        self.targets.get(place)
    }

    /// The member for a connection, among those that answer and have the lowest priority number: one after the other, or by chance
    /// (`random`) in proportion to their weights. None if all are left out.
    pub(crate) fn pick(&self, random: u32) -> Option<usize> {
        let mut state = self.state.lock();
        let up =
            || self.targets.iter().enumerate().zip(&state.down).filter(|(_, down)| !**down).map(|(found, _)| found);
        let best = up().map(|(_, target)| target.priority).min()?;
        let best = || up().filter(|(_, target)| target.priority == best);
        let plain: Vec<usize> = best().filter(|(_, target)| target.weight == 0).map(|(place, _)| place).collect();
        let total: u64 = best().map(|(_, target)| u64::from(target.weight)).sum();
        if total > 0 && (plain.is_empty() || !random.is_multiple_of(UNWEIGHTED_EVERY)) {
            let mut left = u64::from(random / UNWEIGHTED_EVERY).checked_rem(total)?;
            for (place, target) in best() {
                match left.checked_sub(u64::from(target.weight)) {
                    Some(rest) => left = rest,
                    None => return Some(place),
                }
            }
        }
        let place = plain.get(state.turn.checked_rem(plain.len())?).copied();
        state.turn = state.turn.wrapping_add(1);
        place
    }

    /// A member although all are left out, one after the other: none of them is more wrong than to turn the client away.
    pub(crate) fn last_resort(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let place = state.turn.checked_rem(self.targets.len())?;
        state.turn = state.turn.wrapping_add(1);
        Some(place)
    }

    /// Leaves a member out from now on. False if it was left out already.
    pub(crate) fn leave_out(&self, place: usize) -> bool {
        self.set(place, true)
    }

    /// Takes a member in again. False if it was not left out.
    pub(crate) fn take_in(&self, place: usize) -> bool {
        self.set(place, false)
    }

    fn set(&self, place: usize, is_down: bool) -> bool {
        let mut state = self.state.lock();
        state.down.get_mut(place).is_some_and(|down| std::mem::replace(down, is_down) != is_down)
    }

    /// Whether a member is left out.
    pub(crate) fn is_left_out(&self, place: usize) -> bool {
        self.state.lock().down.get(place).is_some_and(|down| *down)
    }

    /// The members that are left out.
    #[cfg(test)]
    pub(crate) fn left_out(&self) -> Vec<usize> {
        let state = self.state.lock();
        state.down.iter().enumerate().filter(|(_, down)| **down).map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balancer(ranks: &[(u16, u16)]) -> Balancer {
        let target = |(port, (priority, weight)): (usize, &(u16, u16))| Target {
            host: "h".into(),
            port: port as u16,
            priority: *priority,
            weight: *weight,
        };
        Balancer::new(ranks.iter().enumerate().map(target).collect())
    }

    #[test]
    fn members_take_turns_and_those_left_out_get_none() {
        let all = balancer(&[(0, 0), (0, 0), (0, 0)]);
        let picks = |count: usize| (0..count).map(|_| all.pick(7)).collect::<Option<Vec<_>>>();
        assert_eq!(picks(6), Some(vec![0, 1, 2, 0, 1, 2]));
        assert!(all.leave_out(1) && !all.leave_out(1) && !all.take_in(0));
        let got = picks(8).expect("picks");
        assert!(!got.contains(&1) && got.iter().filter(|place| **place == 0).count() == 4, "{got:?}");
        assert_eq!(all.left_out(), [1]);
        assert!(all.leave_out(0) && all.leave_out(2));
        assert_eq!(all.pick(7), None);
        let mut resorts: Vec<_> = (0..3).map(|_| all.last_resort()).collect();
        resorts.sort_unstable();
        assert_eq!(resorts, [Some(0), Some(1), Some(2)]);
        assert!(all.take_in(1));
        assert_eq!((all.pick(0), all.pick(1)), (Some(1), Some(1)));
        assert_eq!((balancer(&[]).pick(1), balancer(&[]).last_resort()), (None, None));
    }

    #[test]
    fn the_lowest_priority_counts_while_a_member_of_it_answers() {
        let all = balancer(&[(20, 0), (10, 0), (10, 0), (65_535, 0)]);
        for _ in 0..4 {
            assert!(matches!(all.pick(3), Some(1 | 2)));
        }
        assert!(all.leave_out(1) && all.leave_out(2));
        assert_eq!(all.pick(3), Some(0));
        assert!(all.leave_out(0));
        assert_eq!(all.pick(3), Some(3));
    }

    #[test]
    fn weights_are_shares() {
        let all = balancer(&[(0, 1), (0, 3), (0, 0)]);
        let mut counts = [0; 3];
        for random in 0..40_000 {
            counts[all.pick(random).expect("a member")] += 1;
        }
        // One in a hundred goes to the member without a weight; a quarter and three quarters of the others.
        assert_eq!(counts, [9_900, 29_700, 400]);
    }
}
