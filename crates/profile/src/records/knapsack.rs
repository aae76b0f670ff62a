//! Multiple-choice knapsack: one choice per item within a capacity, with the least total loss.
//!
//! The bound is the linear relaxation. It takes steps along the lower convex hull of each item's
//! choices by falling gain per unit of cost, the last step in part. The steps that fit as a whole
//! give a feasible solution. Branch and bound fixes one item after the other, the largest first. It
//! stops when optimality is proved or the work limit is reached.
//!
//! Choices may also use a second capacity, the side. The bound ignores it and stays valid;
//! solutions that exceed it are rejected.

/// One choice for an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    /// Units of the capacity.
    pub(crate) cost: u64,
    /// Loss; not negative.
    pub(crate) loss: f64,
    /// Units of the second capacity.
    pub(crate) side: u64,
}

/// A choice for every item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Solution {
    /// Index of the choice for each item.
    pub(crate) picks: Vec<usize>,
    /// Total loss.
    pub(crate) loss: f64,
    /// Lower bound on the loss of any solution.
    pub(crate) bound: f64,
    /// True if this solution is proved optimal.
    pub(crate) optimal: bool,
}

/// The capacity that is too small for any solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Infeasible {
    /// The least sufficient capacity.
    Capacity(u64),
    /// The least sufficient second capacity found.
    Side(u64),
}

/// Limit on the steps that the search visits: a fraction of a second.
const WORK: usize = 20_000_000;
/// Relative difference below which losses count as equal.
const TOLERANCE: f64 = 1e-9;

/// Finds the choices with the least loss within both capacities.
///
/// # Errors
/// The capacity that is too small, with its required value.
///
/// # Panics
/// If an item has no choice.
pub(crate) fn solve(items: &[Vec<Choice>], capacity: u64, side: u64) -> Result<Solution, Infeasible> {
    let free = |choice: &Choice| Choice { side: 0, ..*choice };
    let best = search(&map(items, free), capacity, u64::MAX, None).map_err(Infeasible::Capacity)?;
    if side_of(items, &best.picks) <= side {
        return Ok(best);
    }
    let as_loss = |choice: &Choice| Choice { loss: choice.side as f64, side: 0, ..*choice };
    let least = search(&map(items, as_loss), capacity, u64::MAX, None).map_err(Infeasible::Capacity)?;
    let needed = side_of(items, &least.picks);
    if needed > side {
        return Err(Infeasible::Side(needed));
    }
    let loss = items.iter().zip(&least.picks).map(|(item, &pick)| item[pick].loss).sum();
    let found = search(items, capacity, side, Some(Solution { loss, ..least }));
    let found = found.map_err(Infeasible::Capacity)?;
    Ok(Solution { bound: found.bound.max(best.bound), ..found })
}

fn map(items: &[Vec<Choice>], change: impl Fn(&Choice) -> Choice) -> Vec<Vec<Choice>> {
    items.iter().map(|choices| choices.iter().map(&change).collect()).collect()
}

fn side_of(items: &[Vec<Choice>], picks: &[usize]) -> u64 {
    items.iter().zip(picks).fold(0, |sum: u64, (item, &pick)| sum.saturating_add(item[pick].side))
}

/// Runs branch and bound, from a first solution if given. Fails with the least sufficient capacity.
fn search(items: &[Vec<Choice>], capacity: u64, side: u64, first: Option<Solution>) -> Result<Solution, u64> {
    let items: Vec<Item> = items.iter().map(|choices| Item::new(choices)).collect();
    let least = items.iter().fold(0u64, |sum, item| sum.saturating_add(item.choices[0].choice.cost));
    if least > capacity {
        return Err(least);
    }
    let mut search = Search::new(&items, capacity, side);
    search.loss = first.as_ref().map_or(f64::INFINITY, |first| first.loss);
    let bound = search.visit(&mut vec![None; items.len()], 0).unwrap_or(0.0);
    let loss = search.loss;
    let optimal = search.work > 0 || loss <= bound * (1.0 + TOLERANCE);
    let picks = match (search.best, first) {
        (Some(levels), _) => {
            items.iter().zip(&levels).map(|(item, &level)| item.choices[level].pick).collect()
        }
        (None, first) => first.expect("without a side limit the first visit finds a solution").picks,
    };
    Ok(Solution { picks, loss, bound: if optimal { loss } else { bound }, optimal })
}

/// An item's non-dominated choices, by rising cost.
struct Item {
    choices: Vec<Level>,
    /// Indices of the choices on the lower convex hull of loss over cost.
    hull: Vec<usize>,
    least_side: u64,
}

struct Level {
    choice: Choice,
    pick: usize,
}

impl Item {
    fn new(choices: &[Choice]) -> Self {
        assert!(!choices.is_empty(), "an item needs a choice");
        let mut levels: Vec<Level> =
            choices.iter().enumerate().map(|(pick, &choice)| Level { choice, pick }).collect();
        levels.sort_by(|left, right| {
            let (left, right) = (&left.choice, &right.choice);
            left.cost.cmp(&right.cost).then(left.loss.total_cmp(&right.loss)).then(left.side.cmp(&right.side))
        });
        let mut kept: Vec<Level> = Vec::new();
        for level in levels {
            let beats = |other: &Level| {
                other.choice.loss <= level.choice.loss && other.choice.side <= level.choice.side
            };
            if !kept.iter().any(beats) {
                kept.push(level);
            }
        }
        let least_side = kept.iter().map(|level| level.choice.side).min().unwrap_or(0);
        Self { hull: hull(&kept), choices: kept, least_side }
    }

    /// Returns the difference between its largest and smallest cost.
    fn span(&self) -> u64 {
        self.choices[self.choices.len() - 1].choice.cost - self.choices[0].choice.cost
    }
}

/// Returns the levels on the lower convex hull: rising cost, falling loss, falling gain.
fn hull(levels: &[Level]) -> Vec<usize> {
    let mut hull: Vec<usize> = Vec::new();
    for (level, Level { choice, .. }) in levels.iter().enumerate() {
        if hull.last().is_some_and(|&last| choice.loss >= levels[last].choice.loss) {
            continue;
        }
        while let [.., before, last] = hull[..] {
            if gain(levels, before, last) > gain(levels, last, level) {
                break;
            }
            hull.pop();
        }
        hull.push(level);
    }
    hull
}

/// Returns the loss saved per unit of cost between two levels.
fn gain(levels: &[Level], from: usize, to: usize) -> f64 {
    let (from, to) = (&levels[from].choice, &levels[to].choice);
    (from.loss - to.loss) / (to.cost - from.cost) as f64
}

/// A step of an item from one point of its hull to the next.
struct Step {
    item: usize,
    from: usize,
    to: usize,
    gain: f64,
}

struct Search<'a> {
    items: &'a [Item],
    capacity: u64,
    side: u64,
    /// Hull steps of all items, by falling gain.
    steps: Vec<Step>,
    /// Items by falling span: the branching order.
    order: Vec<usize>,
    /// Levels of the best solution so far.
    best: Option<Vec<usize>>,
    /// Loss of the best solution so far.
    loss: f64,
    /// Remaining part of [`WORK`].
    work: usize,
}

impl<'a> Search<'a> {
    fn new(items: &'a [Item], capacity: u64, side: u64) -> Self {
        let of_item = |(index, item): (usize, &'a Item)| {
            item.hull.windows(2).map(move |pair| Step {
                item: index,
                from: pair[0],
                to: pair[1],
                gain: gain(&item.choices, pair[0], pair[1]),
            })
        };
        let mut steps: Vec<Step> = items.iter().enumerate().flat_map(of_item).collect();
        steps.sort_by(|left, right| right.gain.total_cmp(&left.gain));
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(items[index].span()));
        Self { items, capacity, side, steps, order, best: None, loss: f64::INFINITY, work: WORK }
    }

    /// Visits the solutions that agree with `fixed`, in which the first `depth` items of `order`
    /// are fixed. Returns a lower bound on their loss, or `None` if none fits.
    fn visit(&mut self, fixed: &mut Vec<Option<usize>>, depth: usize) -> Option<f64> {
        let (bound, levels) = self.relax(fixed)?;
        let hopeless = bound >= self.loss * (1.0 - TOLERANCE);
        self.work = self.work.saturating_sub(self.steps.len() + self.items.len());
        if hopeless || depth == self.order.len() || self.work == 0 {
            return Some(bound);
        }
        let item = self.order[depth];
        // The relaxation's choice is most often right.
        let count = self.items[item].choices.len();
        let others = (0..count).filter(|&level| level != levels[item]);
        for level in std::iter::once(levels[item]).chain(others) {
            fixed[item] = Some(level);
            self.visit(fixed, depth + 1);
            if self.work == 0 {
                break;
            }
        }
        fixed[item] = None;
        Some(bound)
    }

    /// Returns the bound of the solutions that agree with `fixed` and the levels of the greedy
    /// solution, which is kept if it is the best so far. `None` if no solution agrees.
    fn relax(&mut self, fixed: &[Option<usize>]) -> Option<(f64, Vec<usize>)> {
        let least_side = self.items.iter().zip(fixed).fold(0u64, |sum, (item, level)| {
            sum.saturating_add(level.map_or(item.least_side, |level| item.choices[level].choice.side))
        });
        let mut levels: Vec<usize> = fixed.iter().map(|level| level.unwrap_or(0)).collect();
        let start = self.total(&levels);
        let mut slack = self.capacity.checked_sub(start.cost).filter(|_| least_side <= self.side)?;
        let mut loss = start.loss;
        let mut bound = None;
        for step in self.steps.iter().filter(|step| fixed[step.item].is_none()) {
            // An earlier step of this item did not fit.
            if levels[step.item] != step.from {
                continue;
            }
            let choices = &self.items[step.item].choices;
            let (from, to) = (&choices[step.from].choice, &choices[step.to].choice);
            if to.cost - from.cost > slack {
                bound.get_or_insert(loss - slack as f64 * step.gain);
                continue;
            }
            slack -= to.cost - from.cost;
            loss -= from.loss - to.loss;
            levels[step.item] = step.to;
        }
        // Summed again to avoid cancellation between large losses.
        let bound = bound.unwrap_or_else(|| self.total(&levels).loss).max(0.0);
        self.keep(fixed, levels.clone(), slack);
        Some((bound, levels))
    }

    /// Spends the `slack` of the capacity to lower the side, then keeps the solution if it is the
    /// best.
    fn keep(&mut self, fixed: &[Option<usize>], mut levels: Vec<usize>, mut slack: u64) {
        let mut total = self.total(&levels);
        for &item in self.order.iter().filter(|&&item| fixed[item].is_none()) {
            if total.side <= self.side {
                break;
            }
            let choices = &self.items[item].choices;
            let now = choices[levels[item]].choice;
            let fits = |level: &usize| {
                let choice = &choices[*level].choice;
                choice.side < now.side && choice.cost <= now.cost + slack
            };
            if let Some(level) =
                (0..choices.len()).filter(fits).min_by_key(|&level| choices[level].choice.side)
            {
                slack = slack + now.cost - choices[level].choice.cost;
                total.side = total.side - now.side + choices[level].choice.side;
                levels[item] = level;
            }
        }
        let loss = self.total(&levels).loss;
        if total.side <= self.side && loss < self.loss {
            self.loss = loss;
            self.best = Some(levels);
        }
    }

    /// Returns the total cost, loss and side at these levels.
    fn total(&self, levels: &[usize]) -> Choice {
        let chosen = self.items.iter().zip(levels).map(|(item, &level)| &item.choices[level].choice);
        chosen.fold(Choice { cost: 0, loss: 0.0, side: 0 }, |sum, choice| Choice {
            cost: sum.cost.saturating_add(choice.cost),
            loss: sum.loss + choice.loss,
            side: sum.side.saturating_add(choice.side),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(choices: &[(u64, f64)]) -> Vec<Choice> {
        choices.iter().map(|&(cost, loss)| Choice { cost, loss, side: 0 }).collect()
    }

    #[test]
    fn capacity_limits_are_exact() {
        let items = [item(&[(10, 0.0), (5, 8.0)]), item(&[(10, 0.0), (4, 7.0)])];
        let loss = |capacity| solve(&items, capacity, 0).map(|solution| solution.loss);
        assert_eq!(loss(20), Ok(0.0));
        assert_eq!(loss(19), Ok(7.0));
        assert_eq!(loss(14), Ok(7.0));
        assert_eq!(loss(13), Ok(15.0));
        assert_eq!(loss(9), Ok(15.0));
        assert_eq!(loss(8), Err(Infeasible::Capacity(9)));
    }

    #[test]
    fn a_choice_off_the_hull_is_found_where_it_is_best() {
        let items = [item(&[(0, 10.0), (6, 6.0), (10, 0.0)])];
        let solution = solve(&items, 9, 0).unwrap();
        assert_eq!((solution.picks, solution.loss, solution.optimal), (vec![1], 6.0, true));
    }

    #[test]
    fn dominated_choices_are_never_taken() {
        let items = [item(&[(5, 3.0), (5, 2.0), (6, 2.0), (7, 4.0)])];
        assert_eq!(solve(&items, 100, 0).unwrap().picks, [1]);
    }

    #[test]
    fn the_side_limit_is_kept() {
        let choice = |cost, loss, side| Choice { cost, loss, side };
        let items =
            [vec![choice(1, 0.0, 16), choice(4, 0.0, 12), choice(16, 0.0, 0)], vec![choice(2, 5.0, 9)]];
        let picks = |capacity, side| solve(&items, capacity, side).map(|solution| solution.picks[0]);
        assert_eq!(picks(10, 25), Ok(0));
        assert_eq!(picks(10, 24), Ok(1));
        assert_eq!(picks(10, 20), Err(Infeasible::Side(21)));
        assert_eq!(picks(18, 9), Ok(2));
    }

    #[test]
    fn a_hundred_thousand_items_are_solved_quickly_with_a_small_gap() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let items: Vec<Vec<Choice>> = (0..100_000)
            .map(|_| {
                let entries = 1 + random(1 << 20);
                (0..10)
                    .map(|_| Choice {
                        cost: entries * (8 + random(120)),
                        loss: (entries * random(97)) as f64,
                        side: 0,
                    })
                    .collect()
            })
            .collect();
        let least: u64 = items.iter().map(|item| item.iter().map(|choice| choice.cost).min().unwrap()).sum();
        let start = std::time::Instant::now();
        let solution = solve(&items, least + least / 3, 0).unwrap();
        assert!(start.elapsed().as_secs_f64() < 10.0, "{:?}", start.elapsed());
        let gap = solution.loss / solution.bound - 1.0;
        assert!((0.0..1e-4).contains(&gap), "gap {gap}");
    }
}
