"""Problems with edges: passes over programs of clusters."""
