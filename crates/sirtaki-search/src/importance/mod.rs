//! Which parameters matter: how much of the spread of losses each of them explains.
