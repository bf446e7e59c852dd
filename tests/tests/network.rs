//! Ranks that talk over TCP, plain and encrypted, pass all checks, and so do those in layers.

use sirtaki_tests::make;

sirtaki_tests::conformance!(tcp, make::tcp, [2, 3, 4, 6]);
sirtaki_tests::conformance!(tls, make::tls, [3]);
sirtaki_tests::conformance!(layered_evenly, make::layered_evenly, [4, 6]);
sirtaki_tests::conformance!(layered_unevenly, make::layered_unevenly, [7]);
