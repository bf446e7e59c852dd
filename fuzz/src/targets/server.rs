//! Whatever members of a service say to a parameter server, it answers without a panic.

use sirtaki_server::{
    Delay, RuleSpec, Rules, TableSpec,
    decide::{
        HEAD, Id,
        core::Core,
        message::{Act, Kind, Message, Piece, Request, Terms},
        table::Rows,
        view::View,
    },
    wire,
};

const ME: Id = 1;
const WORKER: Id = 2;

pub(crate) fn check(mut bytes: &[u8]) {
    if let Some(prefix) = bytes.first_chunk() {
        let _ = wire::lengths(prefix);
    }
    let terms = Terms { delay: Delay::Bounded(0), copies: 2 };
    let mut core = Core::new(ME, terms, Rules::default());
    let mut out = Vec::new();
    let servers = [ME, 3].map(|id| (id, ([127, 0, 0, 1], 1).into())).into();
    let view = View { number: 1, servers, workers: vec![WORKER], base: Vec::new() };
    let table = TableSpec { name: "table".into(), rows: 8, width: 1, rule: RuleSpec::adam() };
    let pieces = vec![Piece { block: table.block(0), rows: Rows::Range(0..8), leaves: (0, 0) }];
    let create = Request { view: 1, number: 1, clock: 0, act: Act::Create { table, pieces } };
    let begin = [
        (HEAD, Kind::View(view)),
        (HEAD, Kind::Serve { view: 1, starts: [(WORKER, 0)].into() }),
        (WORKER, Kind::Request(create)),
    ];
    begin.into_iter().for_each(|(from, kind)| core.handle(from, kind.into(), &mut out));
    while let [length, from, rest @ ..] = bytes {
        let (one, after) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = after;
        if let Ok(kind) = wire::header(one) {
            let data = vec![0.5; usize::from(*from / 4)];
            core.handle(Id::from(*from % 4), Message { kind, data }, &mut out);
        }
    }
}
