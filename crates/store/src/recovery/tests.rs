mod damage;
mod power;
mod speed;
