//! Both halves over a link that somebody else makes, in virtual time: for tests and the lab.
