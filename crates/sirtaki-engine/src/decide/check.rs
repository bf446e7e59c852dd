//! Whether ranks mean the same by a name. Refusals are worded once, at the table, so all ranks get the same text.

use std::{borrow::Borrow, collections::BTreeMap};

use sirtaki_comm::{Alarm, Rank};

use crate::decide::request::{Operation, Request};

/// Compares what ranks want under one name; `None` is a rank that has joined and brings nothing. Returns the rows of
/// [`crate::decide::message::Entry`], or what is wrong, in words.
pub fn check<R: Borrow<Request>>(wishes: &[Option<R>]) -> Result<Vec<usize>, String> {
    let present: Vec<(Rank, &Request)> =
        wishes.iter().enumerate().filter_map(|(rank, wish)| Some((rank, wish.as_ref()?.borrow()))).collect();
    let Some(&(_, first)) = present.first() else { return Ok(Vec::new()) };
    if present.iter().any(|(_, request)| *request != first) {
        compare(&present, first)?;
    }
    if first.of_all && present.len() < wishes.len() {
        let joined: Vec<Rank> = (0..wishes.len()).filter(|&rank| wishes[rank].is_none()).collect();
        let verb = if joined.len() == 1 { "has" } else { "have" };
        return Err(format!("\"{}\" needs all ranks, but {} {verb} joined", first.name, name_ranks(&joined)));
    }
    root_is_there(first, wishes)?;
    let rows = rows(first, wishes);
    for (rank, request) in present {
        fits(rank, request, &rows, wishes.len())?;
    }
    Ok(rows)
}

/// Why everything ends when `rank` has announced something impossible. Ranks check their own requests before they
/// announce them, so this rank runs a different program from ours.
pub(crate) fn impossible(rank: Rank, request: &Request) -> Alarm {
    let (who, name) = (name_ranks(&[rank]), request.name.chars().take(80).collect::<String>());
    let reason = format!("{who} announced \"{name}\", which cannot be right; do all ranks run the same version?");
    Alarm::Stopped { reason }
}

/// Something in which requests may differ: what has to be equal, and how to put one rank's version into words.
struct Aspect {
    what: &'static str,
    key: fn(&Request) -> String,
    side: fn(&Request) -> String,
}

const ASPECTS: [Aspect; 7] = [
    Aspect { what: "ask for different operations", key: operation, side: operation },
    Aspect { what: "bring different types", key: dtype, side: dtype },
    Aspect { what: "bring a different number of dimensions", key: |r| r.shape.len().to_string(), side: shape },
    Aspect { what: "bring different shapes", key: |r| format!("{:?}", fixed_shape(r)), side: shape },
    Aspect { what: "have it in different places", key: place, side: place },
    Aspect { what: "compress differently", key: compression, side: compression },
    Aspect { what: "put it into different groups", key: bundle, side: bundle },
];

fn compare(present: &[(Rank, &Request)], first: &Request) -> Result<(), String> {
    for aspect in ASPECTS {
        let key = (aspect.key)(first);
        if present.iter().any(|(_, request)| (aspect.key)(request) != key) {
            return Err(disagreement(&first.name, &aspect, present));
        }
    }
    Ok(())
}

fn operation(request: &Request) -> String {
    request.operation.describe()
}

fn dtype(request: &Request) -> String {
    request.dtype.name().into()
}

fn shape(request: &Request) -> String {
    format!("shape {:?}", request.shape)
}

fn place(request: &Request) -> String {
    request.place.describe().into()
}

fn compression(request: &Request) -> String {
    request.compression.map_or("no compression".into(), |compression| compression.dtype().name().into())
}

fn bundle(request: &Request) -> String {
    match &request.bundle {
        None => "no group".into(),
        Some(bundle) => format!("group \"{}\" of {}", bundle.name, bundle.size),
    }
}

/// The part of the shape that has to be the same everywhere.
fn fixed_shape(request: &Request) -> &[usize] {
    let own = usize::from(request.operation.has_own_rows()).min(request.shape.len());
    &request.shape[own..]
}

fn disagreement(name: &str, Aspect { what, side, .. }: &Aspect, present: &[(Rank, &Request)]) -> String {
    let mut sides: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for (rank, request) in present {
        sides.entry(side(request)).or_default().push(*rank);
    }
    let mut sides: Vec<(String, Vec<Rank>)> = sides.into_iter().collect();
    sides.sort_by_key(|(_, ranks)| ranks[0]);
    let sides: Vec<String> = sides.iter().map(|(side, ranks)| format!("{} {side}", name_ranks(ranks))).collect();
    format!("\"{name}\": ranks {what}: {}", sides.join(", "))
}

fn root_is_there(first: &Request, wishes: &[Option<impl Borrow<Request>>]) -> Result<(), String> {
    match first.operation {
        Operation::Broadcast { root } if wishes.get(root).is_none_or(Option::is_none) => {
            Err(format!("\"{}\": rank {root} is the root of the broadcast but has joined", first.name))
        }
        _ => Ok(()),
    }
}

fn rows(first: &Request, wishes: &[Option<impl Borrow<Request>>]) -> Vec<usize> {
    let wishes = wishes.iter().map(|wish| wish.as_ref().map(Borrow::borrow));
    match first.operation {
        Operation::AllGather => wishes.map(|wish| wish.map_or(0, Request::rows)).collect(),
        Operation::AllToAll { .. } => {
            let size = wishes.len();
            wishes
                .flat_map(|wish| match wish.map(|request| &request.operation) {
                    Some(Operation::AllToAll { splits }) => splits.clone(),
                    _ => vec![0; size],
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a rank has room for exactly what the others send; `rows` are those of an [`crate::decide::message::Entry`].
fn fits(rank: Rank, request: &Request, rows: &[usize], size: usize) -> Result<(), String> {
    let sent = |sender: Rank| match request.operation {
        Operation::AllToAll { .. } => rows[sender * size + rank],
        _ => rows[sender],
    };
    let wrong = request.room.iter().enumerate().find(|&(sender, &room)| room != sent(sender));
    let Some((sender, room)) = wrong else { return Ok(()) };
    let what = if request.row() == 1 { "elements" } else { "rows" };
    Err(format!(
        "\"{}\": ranks disagree about sizes: rank {rank} has room for {room} {what} from rank {sender}, which sends {}",
        request.name,
        sent(sender)
    ))
}

/// Some ranks in words: `rank 2`, `ranks 0,1,3`, and ranges where there are many.
pub fn name_ranks(ranks: &[Rank]) -> String {
    let mut spans: Vec<(Rank, Rank)> = Vec::new();
    for &rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    let span = |&(first, last): &(Rank, Rank)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    let all: Vec<String> = spans.iter().map(span).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, all.join(","))
}

#[cfg(test)]
mod tests {
    use sirtaki_comm::{DType, ReduceOp, Reduction};

    use super::*;
    use crate::decide::request::{Bundle, Compression, TensorPlace};

    fn sum(shape: &[usize]) -> Request {
        Request::new("fc.grad", Operation::AllReduce(Reduction::SUM), DType::F32, shape)
    }

    fn refusal(requests: Vec<Request>) -> String {
        let wishes: Vec<Option<Request>> = requests.into_iter().map(Some).collect();
        check(&wishes).unwrap_err()
    }

    #[test]
    fn every_difference_names_ranks_tensor_and_both_sides() {
        assert_eq!(
            refusal(vec![sum(&[2, 3]), sum(&[2, 3]), sum(&[3, 2])]),
            "\"fc.grad\": ranks bring different shapes: ranks 0,1 shape [2, 3], rank 2 shape [3, 2]"
        );
        let average = Request { operation: Operation::AllReduce(Reduction::AVERAGE), ..sum(&[2]) };
        assert!(refusal(vec![sum(&[2]), average]).contains("rank 0 all_reduce(sum), rank 1 all_reduce(average)"));
        let scaled = Reduction::new(ReduceOp::Sum).scaled(0.5, 1.0);
        let scaled = Request { operation: Operation::AllReduce(scaled), ..sum(&[2]) };
        assert!(refusal(vec![sum(&[2]), scaled]).contains("rank 1 all_reduce(sum, inputs times 0.5)"));
        let roots = [0, 1].map(|root| Request { operation: Operation::Broadcast { root }, ..sum(&[2]) });
        assert!(refusal(roots.to_vec()).contains("rank 0 broadcast from rank 0, rank 1 broadcast from rank 1"));
        assert!(
            refusal(vec![sum(&[2]), Request { dtype: DType::F64, ..sum(&[2]) }]).contains("rank 0 f32, rank 1 f64")
        );
        assert!(refusal(vec![sum(&[6]), sum(&[2, 3])]).contains("number of dimensions"));
        assert_eq!(
            refusal(vec![sum(&[6]), sum(&[6]).placed(TensorPlace::Device)]),
            "\"fc.grad\": ranks have it in different places: rank 0 in the host's memory, rank 1 in a GPU's memory"
        );
        assert!(refusal(vec![sum(&[6]), sum(&[6]).compressed(Compression::BF16)]).contains("rank 1 bf16"));
        let bundled = Request { bundle: Some(Bundle { name: "g".into(), size: 2 }), ..sum(&[6]) };
        assert!(refusal(vec![sum(&[6]), bundled]).contains("rank 0 no group, rank 1 group \"g\" of 2"));
        let sets = [vec![0, 1], vec![0, 2]]
            .map(|members| Request { operation: Operation::ProcessSet { members }, ..sum(&[]) });
        assert!(
            refusal(sets.to_vec()).contains("rank 0 process set of ranks [0, 1], rank 1 process set of ranks [0, 2]")
        );
    }

    #[test]
    fn rows_may_differ_where_they_are_gathered() {
        let gather = |rows| Some(Request { operation: Operation::AllGather, ..sum(&[rows, 3]) });
        assert_eq!(check(&[gather(2), None, gather(0)]).unwrap(), [2, 0, 0]);
        let move_rows = |splits: [usize; 2]| {
            let rows = splits.iter().sum();
            Some(Request { operation: Operation::AllToAll { splits: splits.to_vec() }, ..sum(&[rows]) })
        };
        assert_eq!(check(&[move_rows([1, 2]), move_rows([0, 5])]).unwrap(), [1, 2, 0, 5]);
        assert_eq!(check(&[None, move_rows([0, 5])]).unwrap(), [0, 0, 0, 5]);
    }

    #[test]
    fn rows_have_to_fit_where_there_is_room_for_some_only() {
        let gather = |rows, room: &[usize]| {
            Some(Request { operation: Operation::AllGather, room: room.to_vec(), ..sum(&[rows]) })
        };
        assert!(check(&[gather(2, &[2, 3]), gather(3, &[])]).is_ok());
        assert_eq!(
            check(&[gather(2, &[2, 3]), gather(4, &[2, 4])]).unwrap_err(),
            "\"fc.grad\": ranks disagree about sizes: rank 0 has room for 3 elements from rank 1, which sends 4"
        );
        let exchange = |splits: [usize; 2], room: [usize; 2]| {
            let operation = Operation::AllToAll { splits: splits.to_vec() };
            Some(Request { operation, room: room.to_vec(), ..sum(&[splits.iter().sum(), 3]) })
        };
        assert!(check(&[exchange([1, 2], [1, 0]), exchange([0, 5], [2, 5])]).is_ok());
        let refused = check(&[exchange([1, 2], [1, 0]), exchange([0, 5], [3, 5])]).unwrap_err();
        assert!(refused.contains("rank 1 has room for 3 rows from rank 0, which sends 2"), "{refused}");
    }

    #[test]
    fn what_needs_all_ranks_does_not_go_on_without_some() {
        let gather = Request { operation: Operation::AllGather, ..sum(&[2]) };
        assert!(check(&[Some(gather.clone()), None]).is_ok());
        let refused = check(&[None, Some(gather.clone().of_all()), None]).unwrap_err();
        assert!(refused.contains("needs all ranks, but ranks 0,2 have joined"), "{refused}");
        assert!(check(&[Some(gather.clone().of_all()), Some(gather.of_all())]).is_ok());
    }

    #[test]
    fn a_root_that_has_joined_is_named() {
        let broadcast = Some(Request { operation: Operation::Broadcast { root: 1 }, ..sum(&[2]) });
        assert!(check(&[broadcast, None]).unwrap_err().contains("rank 1 is the root"));
    }

    #[test]
    fn ranks_in_words() {
        assert_eq!(name_ranks(&[2]), "rank 2");
        assert_eq!(name_ranks(&[0, 1, 3]), "ranks 0,1,3");
        assert_eq!(name_ranks(&[0, 1, 2, 3, 7]), "ranks 0-3,7");
    }
}
